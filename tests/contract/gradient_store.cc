#include "tests/contract/gradient_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "kernels/common/check.h"

namespace perigee {
namespace {

absl::Span<const std::byte> BytesOf(const std::vector<float>& values) {
  return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                             values.size() * sizeof(float));
}

}  // namespace

GradientStore::GradientStore(const RankBackends& backends, const Geometry& geometry,
                             const WeightsShape& shape, bool own_mappings)
    : backends_(backends),
      geometry_(geometry),
      shape_(shape),
      layout_(GradientsLayout::Create(shape, geometry.slots)) {
  // A test of refusals has none.
  const size_t slot_bytes = std::max<size_t>(layout_.size_bytes, 4096);
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    for (auto& kind : homes_) {
      kind.emplace_back(backends.of(rank), geometry.experts_per_rank() * elements());
    }
    auto slots = backends.of(rank).AllocateShared(slot_bytes, PeerAccess::kReadOnly);
    PERIGEE_CHECK(slots.ok());
    slots_.push_back(*std::move(slots));
  }
  slots_seen_.resize(geometry.ranks);
  for (int32_t rank = 0; rank < geometry.ranks; ++rank) {
    for (int32_t peer = 0; peer < geometry.ranks; ++peer) {
      slots_seen_[rank].push_back(slots_[peer]->data());
      if (peer == rank || !own_mappings) continue;
      mappings_.push_back(MapFor(backends.of(rank), *slots_[peer], PeerAccess::kReadOnly));
      slots_seen_[rank].back() = mappings_.back()->data();
    }
  }
}

size_t GradientStore::offset(int kind) const {
  return kind == 0 ? layout_.gate : kind == 1 ? layout_.up : layout_.down;
}

void GradientStore::Write(int32_t rank, const GradientValues& values) {
  Backend& backend = backends_.of(rank);
  for (int kind = 0; kind < 3; ++kind) {
    auto* home = reinterpret_cast<std::byte*>(homes_[kind][rank].data());
    EXPECT_TRUE(backend.CopyIn(home, BytesOf(values.home[kind])).ok());
    std::byte* slots = slots_[rank]->data() + offset(kind);
    EXPECT_TRUE(backend.CopyIn(slots, BytesOf(values.slots[kind])).ok());
  }
}

GradientValues GradientStore::Read(int32_t rank) const {
  GradientValues values;
  for (int kind = 0; kind < 3; ++kind) {
    values.home[kind] = homes_[kind][rank].Get();
    values.slots[kind].resize(geometry_.slots * elements());
    auto* to = reinterpret_cast<std::byte*>(values.slots[kind].data());
    const size_t bytes = values.slots[kind].size() * sizeof(float);
    const std::byte* from = slots_[rank]->data() + offset(kind);
    EXPECT_TRUE(backends_.of(rank).CopyOut(absl::MakeSpan(to, bytes), from).ok());
  }
  return values;
}

ExpertGradients GradientStore::GradientsOf(int32_t rank, int32_t layer) const {
  ExpertGradients gradients;
  gradients.layer = layer;
  gradients.shape = shape_;
  gradients.home_gate = homes_[0][rank].data();
  gradients.home_up = homes_[1][rank].data();
  gradients.home_down = homes_[2][rank].data();
  gradients.slots = slots_seen_[rank];
  gradients.own_slots = slots_[rank]->data();
  return gradients;
}

}  // namespace perigee
