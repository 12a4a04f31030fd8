// The operations of one rank, as they are queued. Contracts: kernels/backend.h; each refuses bad
// arguments at once and queues the rest, what becomes of which Settle tells.
#ifndef PERIGEE_KERNELS_CUDA_OPERATIONS_H_
#define PERIGEE_KERNELS_CUDA_OPERATIONS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_rank.h"

namespace perigee {

absl::StatusOr<PlanPtr> QueueDispatch(CudaRank& rank, Sequence sequence, const DispatchInput& input,
                                      const DispatchOutput& output);
absl::Status QueueDispatchWithPlan(CudaRank& rank, Sequence sequence, const PlanPtr& plan,
                                   const DispatchInput& input, const DispatchOutput& output);
absl::Status QueuePrefetchWeights(CudaRank& rank, Sequence sequence, const PlanPtr& plan,
                                  const ExpertWeights& weights);
// The copies run on a stream of their own, up to the join.
absl::Status QueuePrefetchBeside(CudaRank& rank, Sequence sequence, const PlanPtr& plan,
                                 const ExpertWeights& weights);
// Where something runs beside.
absl::Status QueueJoin(CudaRank& rank);
absl::Status QueueRunExperts(CudaRank& rank, const PlanPtr& plan, const ExpertWeights& weights,
                             const RunExpertsInput& input);
absl::Status QueueCombine(CudaRank& rank, Sequence sequence, const PlanPtr& plan,
                          const CombineInput& input, const CombineOutput& output);
absl::Status QueueReduceGradients(CudaRank& rank, Sequence sequence, const PlanPtr& plan,
                                  const ExpertGradients& gradients);
absl::Status QueueProbeCopy(CudaRank& rank, CopyProbe probe);
absl::Status QueueBarrier(CudaRank& rank, Sequence sequence);
absl::Status QueueDecline(CudaRank& rank, Sequence sequence);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_OPERATIONS_H_
