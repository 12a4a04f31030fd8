#include "tests/contract/expert_store.h"

#include <gtest/gtest.h>

#include <utility>

#include "absl/types/span.h"
#include "kernels/common/check.h"
#include "tests/contract/test_data.h"

namespace perigee {

ExpertValues ValuesOf(const ExpertBits& expert) {
  return {ValuesOf(expert.gate), ValuesOf(expert.up), ValuesOf(expert.down)};
}

ExpertStore::ExpertStore(const RankBackends& backends, const Geometry& geometry,
                         const WeightsShape& shape, bool own_mappings)
    : backends_(backends),
      geometry_(geometry),
      shape_(shape),
      home_layout_(WeightsLayout::Home(shape, geometry.experts_per_rank())),
      slot_layout_(WeightsLayout::Slots(shape, geometry.slots)) {
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    auto home = backends.of(rank).AllocateShared(home_layout_.size_bytes, PeerAccess::kReadOnly);
    PERIGEE_CHECK(home.ok());
    homes_.push_back(*std::move(home));
    slots_.emplace_back();
    if (geometry.slots == 0) continue;
    auto slots = backends.of(rank).AllocatePrivate(slot_layout_.size_bytes);
    PERIGEE_CHECK(slots.ok());
    slots_.back() = *std::move(slots);
  }
  home_seen_.resize(geometry.ranks);
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    for (int32_t peer = 0; peer < geometry.ranks; ++peer) {
      home_seen_[rank].push_back(homes_[peer]->data());
      if (peer == rank || !own_mappings) continue;
      mappings_.push_back(MapFor(backends.of(rank), *homes_[peer], PeerAccess::kReadOnly));
      home_seen_[rank].back() = mappings_.back()->data();
    }
  }
}

template <typename T>
void ExpertStore::WriteHome(int32_t rank, size_t offset, const T* values, size_t count) {
  const auto* bytes = reinterpret_cast<const std::byte*>(values);
  EXPECT_TRUE(
      backends_.of(rank)
          .CopyIn(homes_[rank]->data() + offset, absl::MakeConstSpan(bytes, count * sizeof(T)))
          .ok());
}

void ExpertStore::WriteExpert(int32_t rank, int32_t index, const ExpertBits& expert) {
  const size_t elements = shape_.matrix_elements();
  const size_t offset = index * elements * sizeof(BFloat16);
  WriteHome(rank, home_layout_.gate + offset, expert.gate.data(), elements);
  WriteHome(rank, home_layout_.up + offset, expert.up.data(), elements);
  WriteHome(rank, home_layout_.down + offset, expert.down.data(), elements);
}

void ExpertStore::Load(int32_t layer, uint64_t version, const std::vector<ExpertBits>& experts) {
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    SetHeader(rank, -1, 0);
    const int32_t epn = geometry_.experts_per_rank();
    for (int32_t i = 0; i < epn; ++i) WriteExpert(rank, i, experts[rank * epn + i]);
    SetHeader(rank, layer, version);
  }
}

void ExpertStore::Load(int32_t layer, uint64_t version, const std::vector<ExpertParts>& experts) {
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    SetHeader(rank, -1, 0);
    const int32_t epn = geometry_.experts_per_rank();
    for (int32_t i = 0; i < epn; ++i) {
      for (int part = 0; part < kWeightParts; ++part) {
        const std::vector<std::byte>& bytes = experts[rank * epn + i][part];
        WriteHome(rank, home_layout_.part(part) + i * shape_.part_bytes(part), bytes.data(),
                  bytes.size());
      }
    }
    SetHeader(rank, layer, version);
  }
}

void ExpertStore::SetHeader(int32_t rank, int32_t layer, uint64_t version) {
  const HomeHeader header = {version, layer, 0};
  WriteHome(rank, home_layout_.header, &header, 1);
}

ExpertWeights ExpertStore::WeightsOf(int32_t rank, int32_t layer, uint64_t version) const {
  ExpertWeights weights;
  weights.layer = layer;
  weights.version = version;
  weights.home = home_seen_[rank];
  weights.slots = slots_[rank] != nullptr ? slots_[rank]->data() : nullptr;
  weights.shape = shape_;
  return weights;
}

SlotTag ExpertStore::tag(int32_t rank, int32_t slot) const {
  SlotTag tag;
  const std::byte* from = slots_[rank]->data() + slot_layout_.header + slot * sizeof(SlotTag);
  const auto to = absl::MakeSpan(reinterpret_cast<std::byte*>(&tag), sizeof(tag));
  EXPECT_TRUE(backends_.of(rank).CopyOut(to, from).ok());
  return tag;
}

ExpertStore::ExpertParts ExpertStore::slot_parts(int32_t rank, int32_t slot) const {
  ExpertParts parts;
  for (int part = 0; part < kWeightParts; ++part) {
    parts[part].resize(shape_.part_bytes(part));
    const std::byte* from =
        slots_[rank]->data() + slot_layout_.part(part) + slot * shape_.part_bytes(part);
    EXPECT_TRUE(backends_.of(rank).CopyOut(absl::MakeSpan(parts[part]), from).ok());
  }
  return parts;
}

void ExpertStore::PoisonSlots(int32_t rank, std::byte value) {
  const std::vector<std::byte> bytes(slot_layout_.size_bytes - slot_layout_.gate, value);
  EXPECT_TRUE(backends_.of(rank).CopyIn(slots_[rank]->data() + slot_layout_.gate, bytes).ok());
}

ExpertBits ExpertStore::slot(int32_t rank, int32_t slot) const {
  const size_t elements = shape_.matrix_elements();
  const auto read = [&](size_t offset) {
    std::vector<BFloat16> matrix(elements);
    const size_t bytes = elements * sizeof(BFloat16);
    const auto to = absl::MakeSpan(reinterpret_cast<std::byte*>(matrix.data()), bytes);
    EXPECT_TRUE(backends_.of(rank).CopyOut(to, slots_[rank]->data() + offset + slot * bytes).ok());
    return matrix;
  };
  return {read(slot_layout_.gate), read(slot_layout_.up), read(slot_layout_.down)};
}

}  // namespace perigee
