// Checks of the arguments of data-path operations, the same on every backend: what
// kernels/backend.h calls refused. Pure: they read shapes and addresses, never what the addresses
// point to.
//
// All return INVALID_ARGUMENT, naming what was wrong and what was expected.
#ifndef PERIGEE_KERNELS_RANK_ARGUMENT_CHECKS_H_
#define PERIGEE_KERNELS_RANK_ARGUMENT_CHECKS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "kernels/rank/rank_shape.h"

namespace perigee {

// What a data path is made of; every shard must lie at a multiple of granularity_bytes.
absl::Status CheckDataPathOptions(const DataPathOptions& options, size_t granularity_bytes);
// The shape of a data path with checked options.
RankShape MakeRankShape(const DataPathOptions& options);
// A shard that an earlier data path has used would let the first barriers pass unmet. `arrival` is
// this rank's own word in its own control page.
absl::Status CheckFreshShard(const RankShape& shape, uint64_t arrival);

// What the checks need of a plan. used_rows: rows of the shard that it uses, or NvS where that is
// known to the device alone.
struct PlanFacts {
  ObjectTag tag;
  int32_t token_count = 0;
  int32_t used_rows = 0;
};

// Unless this rank's data path of this buffer and generation made the plan. made_by: the rank.
absl::Status CheckPlanOwner(const RankShape& shape, const ObjectTag& tag, RankId made_by);

// A prepared publication (kernels/direct_publication.h) has the shard for itself.
absl::Status CheckShardFree(const RankShape& shape);
// Of ProbeCopy.
absl::Status CheckProbedRows(const RankShape& shape, int64_t rows);
// `what`, `bytes` long, does not meet the shard that the operation uses.
absl::Status CheckOutsideShard(const RankShape& shape, const char* what, const void* data,
                               size_t bytes);

absl::Status CheckDispatchOutput(const RankShape& shape, const DispatchOutput& output);
absl::Status CheckDispatch(const RankShape& shape, const DispatchInput& input,
                           const DispatchOutput& output);
absl::Status CheckDispatchWithPlan(const RankShape& shape, const PlanFacts& plan,
                                   const DispatchInput& input, const DispatchOutput& output);
// The weights' shape fits the buffer, every home block is mapped, and slots are given where B > 0.
absl::Status CheckWeights(const RankShape& shape, const ExpertWeights& weights);
// The gradients' shape fits the buffer, all of them are given, and every remote expert has a slot.
absl::Status CheckGradients(const RankShape& shape, const ExpertGradients& gradients);
absl::Status CheckRunExperts(const RankShape& shape, const PlanFacts& plan,
                             const ExpertWeights& weights, const RunExpertsInput& input);
absl::Status CheckCombine(const RankShape& shape, const PlanFacts& plan, const CombineInput& input,
                          const CombineOutput& output);

// What the shard holds after a dispatch by the plan: its rows, and its weights if they were sent
// now or lay there before.
inline LiveRows LiveAfterDispatch(Sequence plan, const DispatchInput& input,
                                  const LiveRows& before) {
  const bool sent = input.route_weights != nullptr || input.token_count == 0;
  const bool kept = before.weights == plan;
  return LiveRows{plan, sent || kept ? plan : Sequence(0)};
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_ARGUMENT_CHECKS_H_
