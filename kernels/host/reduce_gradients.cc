#include "kernels/host/reduce_gradients.h"

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/layout/gradients_layout.h"
#include "kernels/rank/weights_errors.h"

namespace perigee {
namespace {

// Of one matrix: small enough that the sum stays in the cache from one slot to the next.
constexpr int64_t kElementsAtATime = 4096;

// One of the three kinds of matrices: where this rank's sums are, and where in a slot block.
struct Kind {
  float* home = nullptr;  // [E/R, elements]
  size_t offset = 0;
};

std::vector<Kind> KindsOf(const ExpertGradients& gradients, const GradientsLayout& layout) {
  return {{gradients.home_gate, layout.gate},
          {gradients.home_up, layout.up},
          {gradients.home_down, layout.down}};
}

struct SlotPlace {
  int32_t rank = 0;
  int32_t slot = 0;
};

// The slots that hold gradients for the expert, in ascending (rank, slot).
std::vector<SlotPlace> SlotsOf(const HostRank& rank, const HostPlan& plan, int32_t expert) {
  std::vector<SlotPlace> places;
  for (int32_t peer = 0; peer < rank.geometry.ranks; ++peer) {
    for (int32_t slot = 0; slot < rank.geometry.slots; ++slot) {
      if (plan.expert_in_slot_of(peer, slot) == expert) places.push_back({peer, slot});
    }
  }
  return places;
}

void SumMatrix(const HostRank& rank, float* sum, const std::vector<const float*>& matrices,
               int64_t elements) {
  const auto add = [&](int64_t begin, int64_t end) {
    for (const float* matrix : matrices) {
      for (int64_t i = begin; i < end; ++i) sum[i] += matrix[i];
    }
  };
  rank.pool->ParallelFor(elements, kElementsAtATime, add);
}

// Ends early where the generation is aborted: the exit barrier tells.
void SumAll(const HostRank& rank, const HostPlan& plan, const ExpertGradients& gradients) {
  const GradientsLayout layout = GradientsLayout::Create(gradients.shape, rank.geometry.slots);
  const int64_t elements = gradients.shape.matrix_elements();
  const int32_t experts = rank.geometry.experts_per_rank();
  for (int32_t index = 0; index < experts; ++index) {
    const std::vector<SlotPlace> places = SlotsOf(rank, plan, rank.rank.value * experts + index);
    if (places.empty()) continue;
    for (const Kind& kind : KindsOf(gradients, layout)) {
      if (rank.collective->aborted()) return;
      std::vector<const float*> matrices;
      for (const SlotPlace& place : places) {
        const std::byte* first = gradients.slots[place.rank] + kind.offset;
        matrices.push_back(reinterpret_cast<const float*>(first) + place.slot * elements);
      }
      SumMatrix(rank, kind.home + index * elements, matrices, elements);
    }
  }
}

void ClearOwnSlots(const HostRank& rank, const HostPlan& plan, const ExpertGradients& gradients) {
  const GradientsLayout layout = GradientsLayout::Create(gradients.shape, rank.geometry.slots);
  const size_t bytes = gradients.shape.matrix_elements() * sizeof(float);
  const auto clear = [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) {
      if (plan.expert_in_slot(static_cast<int32_t>(slot)) < 0) continue;
      for (const Kind& kind : KindsOf(gradients, layout)) {
        std::memset(gradients.own_slots + kind.offset + slot * bytes, 0, bytes);
      }
    }
  };
  rank.pool->ParallelFor(rank.geometry.slots, 1, clear);
}

}  // namespace

absl::Status HostReduceGradients(HostRank& rank, Sequence sequence, const PlanPtr& handle,
                                 const ExpertGradients& gradients) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kReduceGradients);
  if (!status.ok()) return status;
  const absl::StatusOr<std::shared_ptr<const HostPlan>> plan = HostPlanOf(rank, handle);
  if (!plan.ok()) return plan.status();
  if (status = CheckGradients(rank, gradients); !status.ok()) return status;

  OperationDescriptor descriptor = rank.Descriptor(Operation::kReduceGradients);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  descriptor.intermediate = gradients.shape.intermediate;
  descriptor.layer = gradients.layer;
  descriptor.dtype = static_cast<uint32_t>(Dtype::kFloat32);
  // Orders: what every rank has summed up in its slots, before the reads of it below.
  if (status = rank.collective->Enter(descriptor, 0); !status.ok()) return status;
  SumAll(rank, **plan, gradients);
  // Orders: the reads above before any slot is cleared or written anew.
  if (status = rank.collective->Exit(); !status.ok()) {
    return WithUndefinedSums(status, gradients.layer);
  }
  ClearOwnSlots(rank, **plan, gradients);
  return absl::OkStatus();
}

}  // namespace perigee
