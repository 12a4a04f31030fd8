#include "kernels/host/prefetch.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/types/optional.h"
#include "kernels/host/weight_access.h"
#include "kernels/rank/weights_errors.h"

namespace perigee {
namespace {

struct StaleHome {
  int32_t rank = 0;
  HomeHeader held;
};

struct Replica {
  int32_t slot = 0;
  int32_t expert = 0;
};

std::vector<Replica> ReplicasOf(const HostRank& rank, const HostPlan& plan) {
  std::vector<Replica> replicas;
  for (int32_t slot = 0; slot < rank.geometry.slots; ++slot) {
    const int32_t expert = plan.expert_in_slot(slot);
    if (expert >= 0) replicas.push_back({slot, expert});
  }
  return replicas;
}

void CopyMatrices(const HostRank& rank, const ExpertWeights& weights, const WeightAccess& access,
                  const std::vector<Replica>& replicas) {
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Replica& replica = replicas[i];
      for (int part = 0; part < kWeightParts; ++part) {
        std::copy_n(access.home_part(replica.expert, part), weights.shape.part_bytes(part),
                    access.slot_part(replica.slot, part));
      }
    }
  };
  rank.pool->ParallelFor(static_cast<int64_t>(replicas.size()), 1, copy);
}

// Fills the slots; the first home that did not hold the weights wanted, before or after the copy.
absl::optional<StaleHome> FillSlots(const HostRank& rank, const ExpertWeights& weights,
                                    const std::vector<Replica>& replicas) {
  const WeightAccess access(rank.geometry, weights);
  std::vector<Replica> good;
  absl::optional<StaleHome> stale;
  const auto holds = [&](const Replica& replica) {
    const int32_t home = rank.geometry.home_rank(replica.expert);
    const HomeHeader held = access.home_header(home);
    if (access.HomeHolds(held)) return true;
    if (!stale) stale = StaleHome{home, held};
    return false;
  };
  for (const Replica& replica : replicas) {
    access.set_tag(replica.slot, SlotTag());
    if (holds(replica)) good.push_back(replica);
  }
  CopyMatrices(rank, weights, access, good);
  for (const Replica& replica : good) {
    if (holds(replica)) access.set_tag(replica.slot, access.WantedTag(replica.expert));
  }
  return stale;
}

absl::Status StaleError(HostRank& rank, const ExpertWeights& weights, const StaleHome& stale) {
  const WantedWeights wanted{weights.layer, weights.version};
  return rank.collective->Fail(StaleHomeRecord(stale.rank, stale.held, wanted),
                               DescribeStaleHome(stale.rank, stale.held, wanted));
}

}  // namespace

absl::Status HostPrefetchWeights(HostRank& rank, Sequence sequence, const PlanPtr& handle,
                                 const ExpertWeights& weights) {
  absl::Status status = rank.collective->Begin(sequence, Operation::kPrefetchWeights);
  if (!status.ok()) return status;
  const absl::StatusOr<std::shared_ptr<const HostPlan>> plan = HostPlanOf(rank, handle);
  if (!plan.ok()) return plan.status();
  if (status = CheckWeights(rank, weights); !status.ok()) return status;

  OperationDescriptor descriptor = rank.Descriptor(Operation::kPrefetchWeights);
  descriptor.plan_sequence = (*plan)->tag().sequence.value;
  descriptor.intermediate = weights.shape.intermediate;
  descriptor.dtype = static_cast<uint32_t>(DtypeOf(weights.shape.format));
  descriptor.layer = weights.layer;
  descriptor.weights_version = weights.version;
  // Orders: the loading of every home block before the reads of it below.
  if (status = rank.collective->Enter(descriptor, 0); !status.ok()) return status;
  const absl::optional<StaleHome> stale = FillSlots(rank, weights, ReplicasOf(rank, **plan));
  // Orders: the reads above before any home block is loaded anew.
  if (status = rank.collective->Exit(); !status.ok()) return status;
  return stale ? StaleError(rank, weights, *stale) : absl::OkStatus();
}

}  // namespace perigee
