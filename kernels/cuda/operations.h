// The operations of one rank, as they are queued. Contracts: kernels/backend.h,
// kernels/direct_publication.h and kernels/owner_source.h; each refuses bad arguments at once and
// queues the rest, what becomes of which Settle tells.
#ifndef PERIGEE_KERNELS_CUDA_OPERATIONS_H_
#define PERIGEE_KERNELS_CUDA_OPERATIONS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_rank.h"
#include "kernels/direct_publication.h"
#include "kernels/owner_source.h"
#include "kernels/row_producer.h"

namespace perigee {

absl::StatusOr<PlanPtr> QueueDispatch(CudaRank& rank, Sequence sequence, const DispatchInput& input,
                                      const DispatchOutput& output);
absl::Status QueueDispatchWithPlan(CudaRank& rank, Sequence sequence, const PlanPtr& plan,
                                   const DispatchInput& input, const DispatchOutput& output);
// The last step of a dispatch or a publication: copies for a caller that does not read in place.
int LaunchOutput(const CudaRank& rank, const OperationMark& mark, const PlanView& plan,
                 const DispatchOutput& output);

absl::StatusOr<TargetPtr> QueuePrepareDispatch(CudaRank& rank, Sequence sequence,
                                               const TargetInput& input);
absl::Status QueuePreparePublication(CudaRank& rank, const TargetPtr& target,
                                     const float* route_weights);
// On a stream of its own, up to the publication.
absl::Status QueuePreparationBeside(CudaRank& rank, const TargetPtr& target,
                                    const float* route_weights);
absl::Status QueueStoreRows(CudaRank& rank, const TargetPtr& target, const BFloat16* hidden);
absl::StatusOr<PlanPtr> QueuePublish(CudaRank& rank, Sequence sequence, const TargetPtr& target,
                                     const DispatchOutput& output);

absl::StatusOr<SourcePtr> QueuePrepareSource(CudaRank& rank, Sequence sequence,
                                             const SourceInput& input);
absl::StatusOr<PlanPtr> QueueMaterialise(CudaRank& rank, Sequence sequence, const SourcePtr& source,
                                         const DispatchOutput& output);
absl::Status QueueProduce(CudaRank& rank, const ProductInput& input, BFloat16* output);
absl::Status QueueProduceInto(CudaRank& rank, const ProductInput& input, const TargetPtr& target);

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
absl::Status QueueProbeCopy(CudaRank& rank, CopyProbe probe, int64_t rows);
absl::Status QueueBarrier(CudaRank& rank, Sequence sequence);
absl::Status QueueDecline(CudaRank& rank, Sequence sequence);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_OPERATIONS_H_
