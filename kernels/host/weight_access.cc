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

const std::byte* WeightAccess::home_part(int32_t expert, int part) const {
  const int64_t index = expert % geometry_.experts_per_rank();
  return weights_.home[geometry_.home_rank(expert)] + home_layout_.part(part) +
         index * weights_.shape.part_bytes(part);
}

std::byte* WeightAccess::slot_part(int32_t slot, int part) const {
  return weights_.slots + slot_layout_.part(part) + slot * weights_.shape.part_bytes(part);
}

ExpertMatrices WeightAccess::home(int32_t expert) const {
  const auto matrix = [&](int part) {
    return reinterpret_cast<const BFloat16*>(home_part(expert, part));
  };
  return {matrix(0), matrix(1), matrix(2)};
}

ExpertMatrices WeightAccess::slot(int32_t slot) const {
  const auto matrix = [&](int part) {
    return reinterpret_cast<const BFloat16*>(slot_part(slot, part));
  };
  return {matrix(0), matrix(1), matrix(2)};
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
