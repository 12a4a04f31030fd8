#include "worker/memory/buffer_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/layout/source_layout.h"

namespace perigee {
namespace {

ShardLayout ShardOf(const BufferShape& shape) {
  return ShardLayout::Create(shape.geometry, shape.hidden, shape.dispatch_output_slots);
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

// Which the data path allocates.
uint64_t ExpertOutputBytes(const BufferShape& shape) {
  return uint64_t{sizeof(BFloat16)} * shape.geometry.logical_rows() * shape.hidden *
         shape.expert_output_slots;
}

GradientBlockLayout GradientsOf(const BufferShape& shape) {
  if (!shape.gradients) return GradientBlockLayout();
  return GradientBlockLayout::Create(shape.weights(), shape.geometry.slots,
                                     shape.geometry.experts_per_rank(), shape.layers);
}

size_t SourceBytes(const BufferShape& shape) {
  if (!shape.source_storage) return 0;
  return SourceLayout::Create(shape.geometry, shape.hidden).size_bytes;
}

bool IsKind(const PartDescription& description, PartKind kind) {
  return description.kind == static_cast<uint32_t>(kind);
}

}  // namespace

uint64_t BufferMemory::NeededBytes(const BufferShape& shape) {
  const uint64_t home_bytes =
      shape.has_weights() ? uint64_t{HomeLayout(shape).size_bytes} * shape.layers : 0;
  return ShardOf(shape).words_bytes() + RowsBytes(shape) + home_bytes + SlotBytes(shape) +
         GradientsOf(shape).size_bytes + SourceBytes(shape) + ExpertOutputBytes(shape);
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
      gradients_layout_(GradientsOf(shape)),
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
  if (shape_.gradients) {
    // Peers import it for reading only, but this rank's local client writes to it.
    absl::StatusOr<std::unique_ptr<Memory>> gradients =
        backend_.AllocateShared(gradients_layout_.size_bytes, PeerAccess::kReadWrite);
    if (!gradients.ok()) return gradients.status();
    own.gradients = *std::move(gradients);
    if (absl::Status status = check_wanted(); !status.ok()) return status;
  }
  if (shape_.source_storage) {
    // As the gradients.
    absl::StatusOr<std::unique_ptr<Memory>> source =
        backend_.AllocateShared(SourceBytes(shape_), PeerAccess::kReadWrite);
    if (!source.ok()) return source.status();
    own.source = *std::move(source);
    if (absl::Status status = check_wanted(); !status.ok()) return status;
  }
  if (SlotBytes(shape_) == 0) return absl::OkStatus();
  // No peer imports it, but this rank's local client reads it.
  absl::StatusOr<std::unique_ptr<Memory>> slots =
      backend_.AllocateShared(SlotBytes(shape_), PeerAccess::kReadOnly);
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
  if (shape_.gradients) {
    parts.push_back(
        {static_cast<uint32_t>(PartKind::kGradients), -1, gradients_layout_.size_bytes});
  }
  if (shape_.source_storage) {
    parts.push_back({static_cast<uint32_t>(PartKind::kSource), -1, SourceBytes(shape_)});
  }
  return parts;
}

const Memory& BufferMemory::PartOf(const PartDescription& description) const {
  const RankParts& own = of(rank_);
  if (IsKind(description, PartKind::kShard)) return *own.shard;
  if (IsKind(description, PartKind::kShardRows)) return *own.shard_rows;
  if (IsKind(description, PartKind::kGradients)) return *own.gradients;
  if (IsKind(description, PartKind::kSource)) return *own.source;
  return *own.homes[description.layer];
}

std::vector<OfferedPart> BufferMemory::parts() const {
  std::vector<OfferedPart> parts;
  for (const PartDescription& description : part_descriptions()) {
    parts.push_back({description, PartOf(description).descriptor()});
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
    const bool is_shard = kind == PartKind::kShard || kind == PartKind::kShardRows;
    if (shape_.peer_store && kind == PartKind::kShardRows) {
      parts.rows_descriptor = FileDescriptor(fcntl(descriptors[i].get(), F_DUPFD_CLOEXEC, 0));
      if (!parts.rows_descriptor.valid()) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "no descriptors are left for clients' mappings of the rows of rank ", peer.value));
      }
    }
    absl::StatusOr<std::unique_ptr<Memory>> memory =
        backend_.Import(descriptors[i].Release(), expected[i].size_bytes,
                        is_shard ? PeerAccess::kReadWrite : PeerAccess::kReadOnly);
    if (!memory.ok()) {
      return absl::Status(memory.status().code(), absl::StrCat("memory of rank ", peer.value, ": ",
                                                               memory.status().message()));
    }
    if (is_home) {
      parts.homes.push_back(*std::move(memory));
    } else if (kind == PartKind::kGradients) {
      parts.gradients = *std::move(memory);
    } else if (kind == PartKind::kSource) {
      parts.source = *std::move(memory);
    } else {
      (kind == PartKind::kShard ? parts.shard : parts.shard_rows) = *std::move(memory);
    }
  }
  return absl::OkStatus();
}

std::vector<int> BufferMemory::peer_rows_descriptors() const {
  std::vector<int> descriptors;
  for (int32_t rank = 0; shape_.peer_store && rank < shape_.geometry.ranks; ++rank) {
    if (rank != rank_.value) descriptors.push_back(of(RankId(rank)).rows_descriptor.get());
  }
  return descriptors;
}

std::vector<std::byte*> BufferMemory::shards() const {
  std::vector<std::byte*> shards;
  for (int32_t rank = 0; rank < shape_.geometry.ranks; ++rank) {
    const RankParts& parts = of(RankId(rank));
    PERIGEE_CHECK(parts.shard != nullptr);
    shards.push_back(parts.shard->data());
  }
  return shards;
}

std::vector<std::byte*> BufferMemory::shard_rows() const {
  std::vector<std::byte*> rows;
  for (int32_t rank = 0; rank < shape_.geometry.ranks; ++rank) {
    const RankParts& parts = of(RankId(rank));
    PERIGEE_CHECK(parts.shard_rows != nullptr);
    rows.push_back(parts.shard_rows->data());
  }
  return rows;
}

std::vector<std::byte*> BufferMemory::sources() const {
  std::vector<std::byte*> sources;
  for (int32_t rank = 0; shape_.source_storage && rank < shape_.geometry.ranks; ++rank) {
    const RankParts& parts = of(RankId(rank));
    PERIGEE_CHECK(parts.source != nullptr);
    sources.push_back(parts.source->data());
  }
  return sources;
}

std::vector<const std::byte*> BufferMemory::homes(int32_t layer) const {
  PERIGEE_CHECK(layer >= 0 && layer < shape_.layers);
  std::vector<const std::byte*> homes;
  for (int32_t rank = 0; rank < shape_.geometry.ranks; ++rank) {
    const RankParts& parts = of(RankId(rank));
    PERIGEE_CHECK(parts.homes.size() == static_cast<size_t>(shape_.layers));
    homes.push_back(parts.homes[layer]->data());
  }
  return homes;
}

ExpertGradients BufferMemory::gradients(int32_t layer) const {
  PERIGEE_CHECK(shape_.gradients && layer >= 0 && layer < shape_.layers);
  std::byte* own = of(rank_).gradients->data();
  const size_t home = gradients_layout_.home_offset(layer);
  const auto matrix = [&](size_t offset) { return reinterpret_cast<float*>(own + home + offset); };
  ExpertGradients gradients;
  gradients.layer = layer;
  gradients.shape = shape_.weights();
  gradients.home_gate = matrix(gradients_layout_.home.gate);
  gradients.home_up = matrix(gradients_layout_.home.up);
  gradients.home_down = matrix(gradients_layout_.home.down);
  for (int32_t rank = 0; rank < shape_.geometry.ranks; ++rank) {
    const RankParts& parts = of(RankId(rank));
    PERIGEE_CHECK(parts.gradients != nullptr);
    gradients.slots.push_back(parts.gradients->data());
  }
  gradients.own_slots = own;
  return gradients;
}

}  // namespace perigee
