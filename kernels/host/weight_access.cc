#include "kernels/host/weight_access.h"

#include <atomic>
#include <cstring>

#include "kernels/common/shared_words.h"

namespace perigee {
namespace {

// Reads before it stay before reads after it. The race detector knows no fences and refuses to
// compile one; what is read here is ordered for it by the barriers.
void ReadFence() {
#if !defined(PERIGEE_TSAN)
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

}  // namespace

WeightAccess::WeightAccess(const Geometry& geometry, const ExpertWeights& weights)
    : geometry_(geometry),
      weights_(weights),
      home_layout_(WeightsLayout::Home(weights.shape, geometry.experts_per_rank())),
      slot_layout_(WeightsLayout::Slots(weights.shape, geometry.slots)) {}

ExpertMatrices WeightAccess::home(int32_t expert) const {
  const std::byte* block = weights_.home[geometry_.home_rank(expert)];
  const int64_t first = (expert % geometry_.experts_per_rank()) * weights_.shape.matrix_elements();
  const auto matrix = [&](size_t offset) {
    return reinterpret_cast<const BFloat16*>(block + offset) + first;
  };
  return {matrix(home_layout_.gate), matrix(home_layout_.up), matrix(home_layout_.down)};
}

BFloat16* WeightAccess::SlotMatrix(size_t offset, int32_t slot) const {
  return reinterpret_cast<BFloat16*>(weights_.slots + offset) +
         slot * weights_.shape.matrix_elements();
}
BFloat16* WeightAccess::slot_gate(int32_t slot) const {
  return SlotMatrix(slot_layout_.gate, slot);
}
BFloat16* WeightAccess::slot_up(int32_t slot) const { return SlotMatrix(slot_layout_.up, slot); }
BFloat16* WeightAccess::slot_down(int32_t slot) const {
  return SlotMatrix(slot_layout_.down, slot);
}
ExpertMatrices WeightAccess::slot(int32_t slot) const {
  return {slot_gate(slot), slot_up(slot), slot_down(slot)};
}

HomeHeader WeightAccess::home_header(int32_t rank) const {
  // Between reads of the matrices and of the header: neither moves past it.
  ReadFence();
  // The block may be mapped read only; loads of words need no more.
  auto* block = const_cast<std::byte*>(weights_.home[rank]);
  const HomeHeader header = LoadShared(*reinterpret_cast<HomeHeader*>(block + home_layout_.header));
  ReadFence();
  return header;
}

bool WeightAccess::HomeHolds(const HomeHeader& header) const {
  return header.version == weights_.version && header.layer == weights_.layer;
}

SlotTag WeightAccess::tag(int32_t slot) const {
  SlotTag tag;
  std::memcpy(&tag, weights_.slots + slot_layout_.header + slot * sizeof(SlotTag), sizeof(tag));
  return tag;
}

void WeightAccess::set_tag(int32_t slot, const SlotTag& tag) const {
  std::memcpy(weights_.slots + slot_layout_.header + slot * sizeof(SlotTag), &tag, sizeof(tag));
}

SlotTag WeightAccess::WantedTag(int32_t expert) const {
  return SlotTag{weights_.version, weights_.layer, expert};
}

}  // namespace perigee
