// Checks of the arguments of direct publication, and what lives in the shard after its steps; the
// same on every backend, as in argument_checks.h.
//
// All checks return INVALID_ARGUMENT, naming what was wrong and what was expected.
#ifndef PERIGEE_KERNELS_RANK_PUBLICATION_CHECKS_H_
#define PERIGEE_KERNELS_RANK_PUBLICATION_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/common/ids.h"
#include "kernels/direct_publication.h"
#include "kernels/rank/rank_shape.h"

namespace perigee {

// Which target it is, and for how many tokens.
struct TargetFacts {
  ObjectTag tag;
  RankId rank;  // that made it
  int32_t token_count = 0;
};

// The target that lives here.
absl::Status CheckTarget(const RankShape& shape, const TargetFacts& target);

absl::Status CheckPrepareDispatch(const RankShape& shape, const TargetInput& input);
absl::Status CheckPreparePublication(const RankShape& shape, const TargetFacts& target,
                                     const float* route_weights);
absl::Status CheckStoreRows(const RankShape& shape, const TargetFacts& target,
                            const BFloat16* hidden);
absl::Status CheckPublish(const RankShape& shape, const TargetFacts& target,
                          const DispatchOutput& output);

// What the shard holds when a target is planned; when its publication is prepared; when it is
// published, given what it held before.
LiveRows LiveWithTarget(Sequence target);
LiveRows LivePrepared(const TargetFacts& target, const float* route_weights);
LiveRows LiveAfterPublish(const LiveRows& before);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_PUBLICATION_CHECKS_H_
