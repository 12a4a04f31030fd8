#include "worker/memory/buffer_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "kernels/layout/shard_layout.h"

namespace perigee {
namespace {

ShardLayout ShardOf(const BufferShape& shape) {
  return ShardLayout::Create(shape.geometry, shape.hidden);
}

// A shard without rows has a part for them all the same: nobody allocates 0 bytes.
size_t RowsBytes(const BufferShape& shape) {
  return std::max(ShardOf(shape).rows_bytes(), kHostGranularityBytes);
}

WeightsLayout HomeLayout(const BufferShape& shape) {
  return WeightsLayout::Home(shape.weights(), shape.geometry.experts_per_rank());
}

size_t SlotBytes(const BufferShape& shape) {
  if (!shape.has_weights() || shape.geometry.slots == 0) return 0;
  return WeightsLayout::Slots(shape.weights(), shape.geometry.slots).size_bytes;
}

}  // namespace

uint64_t BufferMemory::NeededBytes(const BufferShape& shape) {
  const uint64_t home_bytes =
      shape.has_weights() ? uint64_t{HomeLayout(shape).size_bytes} * shape.layers : 0;
  return ShardOf(shape).words_bytes() + RowsBytes(shape) + home_bytes + SlotBytes(shape);
}

absl::StatusOr<std::unique_ptr<BufferMemory>> BufferMemory::Allocate(Backend& backend,
                                                                     const BufferShape& shape,
                                                                     RankId rank,
                                                                     const Interrupt* stop) {
  const uint64_t needed = NeededBytes(shape);
  const uint64_t free = backend.info().free_bytes;
  if (needed > free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the buffer needs ", needed, " bytes here, ", free, " are free"));
  }
  std::unique_ptr<BufferMemory> memory(new BufferMemory(backend, shape, rank));
  if (absl::Status status = memory->AllocateOwn(stop); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat("the buffer needs ", needed,
                                                    " bytes here: ", status.message()));
  }
  return memory;
}

BufferMemory::BufferMemory(Backend& backend, const BufferShape& shape, RankId rank)
    : backend_(backend),
      shape_(shape),
      rank_(rank),
      home_layout_(HomeLayout(shape)),
      ranks_(shape.geometry.ranks) {
  PERIGEE_CHECK(rank.value >= 0 && rank.value < shape.geometry.ranks);
}

BufferMemory::~BufferMemory() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (static_cast<int32_t>(rank) != rank_.value) ranks_[rank] = RankParts();
  }
}

absl::Status BufferMemory::AllocateOwn(const Interrupt* stop) {
  const WaitLimit limit(absl::InfiniteDuration(), stop);
  const auto check_wanted = [&] { return limit.Pause(absl::ZeroDuration()); };
  RankParts& own = ranks_[rank_.value];
  absl::StatusOr<std::unique_ptr<Memory>> shard =
      backend_.AllocateShared(ShardOf(shape_).words_bytes(), PeerAccess::kReadWrite);
  if (!shard.ok()) return shard.status();
  own.shard = *std::move(shard);
  if (absl::Status status = check_wanted(); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Memory>> rows =
      backend_.AllocateShared(RowsBytes(shape_), PeerAccess::kReadWrite);
  if (!rows.ok()) return rows.status();
  own.shard_rows = *std::move(rows);
  for (int32_t layer = 0; layer < shape_.layers; ++layer) {
    if (absl::Status status = check_wanted(); !status.ok()) return status;
    absl::StatusOr<std::unique_ptr<Memory>> home =
        backend_.AllocateShared(home_layout_.size_bytes, PeerAccess::kReadOnly);
    if (!home.ok()) return home.status();
    own.homes.push_back(*std::move(home));
  }
  if (absl::Status status = check_wanted(); !status.ok()) return status;
  if (SlotBytes(shape_) == 0) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<Memory>> slots = backend_.AllocatePrivate(SlotBytes(shape_));
  if (slots.ok()) slots_ = *std::move(slots);
  return slots.status();
}

std::vector<PartDescription> BufferMemory::part_descriptions() const {
  std::vector<PartDescription> parts = {
      {static_cast<uint32_t>(PartKind::kShard), -1, ShardOf(shape_).words_bytes()},
      {static_cast<uint32_t>(PartKind::kShardRows), -1, RowsBytes(shape_)}};
  for (int32_t layer = 0; layer < shape_.layers; ++layer) {
    parts.push_back({static_cast<uint32_t>(PartKind::kHomeBlock), layer, home_layout_.size_bytes});
  }
  return parts;
}

std::vector<OfferedPart> BufferMemory::parts() const {
  const RankParts& own = of(rank_);
  std::vector<OfferedPart> parts;
  for (const PartDescription& description : part_descriptions()) {
    const Memory* memory = nullptr;
    switch (static_cast<PartKind>(description.kind)) {
      case PartKind::kShard:
        memory = own.shard.get();
        break;
      case PartKind::kShardRows:
        memory = own.shard_rows.get();
        break;
      case PartKind::kHomeBlock:
        memory = own.homes[description.layer].get();
        break;
    }
    parts.push_back({description, memory->descriptor()});
  }
  return parts;
}

absl::Status BufferMemory::ImportPeer(RankId peer, std::vector<FileDescriptor> descriptors) {
  const std::vector<PartDescription> expected = part_descriptions();
  PERIGEE_CHECK(peer != rank_ && peer.value >= 0 && peer.value < shape_.geometry.ranks);
  PERIGEE_CHECK(descriptors.size() == expected.size());
  RankParts& parts = ranks_[peer.value];
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto kind = static_cast<PartKind>(expected[i].kind);
    const bool is_home = kind == PartKind::kHomeBlock;
    absl::StatusOr<std::unique_ptr<Memory>> memory =
        backend_.Import(descriptors[i].Release(), expected[i].size_bytes,
                        is_home ? PeerAccess::kReadOnly : PeerAccess::kReadWrite);
    if (!memory.ok()) {
      return absl::Status(memory.status().code(), absl::StrCat("memory of rank ", peer.value, ": ",
                                                               memory.status().message()));
    }
    if (is_home) {
      parts.homes.push_back(*std::move(memory));
    } else {
      (kind == PartKind::kShard ? parts.shard : parts.shard_rows) = *std::move(memory);
    }
  }
  return absl::OkStatus();
}

std::vector<std::byte*> BufferMemory::shards() const {
  std::vector<std::byte*> shards;
  for (const RankParts& parts : ranks_) {
    PERIGEE_CHECK(parts.shard != nullptr);
    shards.push_back(parts.shard->data());
  }
  return shards;
}

std::vector<std::byte*> BufferMemory::shard_rows() const {
  std::vector<std::byte*> rows;
  for (const RankParts& parts : ranks_) {
    PERIGEE_CHECK(parts.shard_rows != nullptr);
    rows.push_back(parts.shard_rows->data());
  }
  return rows;
}

std::vector<const std::byte*> BufferMemory::homes(int32_t layer) const {
  PERIGEE_CHECK(layer >= 0 && layer < shape_.layers);
  std::vector<const std::byte*> homes;
  for (const RankParts& parts : ranks_) {
    PERIGEE_CHECK(parts.homes.size() == static_cast<size_t>(shape_.layers));
    homes.push_back(parts.homes[layer]->data());
  }
  return homes;
}

}  // namespace perigee
