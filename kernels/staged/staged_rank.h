// What the operations of a staged data path share, and the operations. Contracts:
// kernels/backend.h; each has ended when it returns.
#ifndef PERIGEE_KERNELS_STAGED_STAGED_RANK_H_
#define PERIGEE_KERNELS_STAGED_STAGED_RANK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/staged/staged_collective.h"
#include "kernels/staged/staged_device.h"
#include "kernels/staged/staged_plan.h"

namespace perigee {

// Where rows and weights lie on their way, in the device's memory.
struct StagingArea {
  BFloat16* rows_out = nullptr;  // [MostStagedRows, H]
  BFloat16* rows_in = nullptr;   // [MostStagedRows, H]
  float* weights_out = nullptr;  // [S * K]
  float* weights_in = nullptr;   // [S * K]
  int32_t* routes = nullptr;     // [R, S, K]
  int64_t rows_in_bytes = 0;     // of rows_in
};

struct StagedRank {
  std::unique_ptr<StagedDevice> device;
  std::unique_ptr<StagedCollective> collective;
  std::unique_ptr<Memory> memory;  // of the area
  StagingArea area;
  std::shared_ptr<ListPool> lists;

  RankShape& shape() const { return device->shape(); }
  int32_t ranks() const { return static_cast<int32_t>(device->shape().shards.size()); }
};

absl::StatusOr<PlanPtr> StagedDispatch(StagedRank& rank, Sequence sequence,
                                       const DispatchInput& input, const DispatchOutput& output);
absl::Status StagedDispatchWithPlan(StagedRank& rank, Sequence sequence, const PlanPtr& plan,
                                    const DispatchInput& input, const DispatchOutput& output);
absl::Status StagedCombine(StagedRank& rank, Sequence sequence, const PlanPtr& plan,
                           const CombineInput& input, const CombineOutput& output);
absl::Status StagedPrefetchWeights(StagedRank& rank, Sequence sequence, const PlanPtr& plan,
                                   const ExpertWeights& weights);
absl::Status StagedReduceGradients(StagedRank& rank, Sequence sequence, const PlanPtr& plan,
                                   const ExpertGradients& gradients);

// The transfers of a list of elements that lies by rank: counts [R] of elements of so many bytes.
std::vector<Outgoing> OutgoingByRank(const void* list, const std::vector<int32_t>& counts,
                                     size_t element_bytes);
std::vector<Incoming> IncomingByRank(void* list, const std::vector<int32_t>& counts,
                                     size_t element_bytes);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_STAGED_STAGED_RANK_H_
