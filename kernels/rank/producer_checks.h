// Checks of the arguments of a producer's products, the same on every backend, as in
// argument_checks.h.
//
// All return INVALID_ARGUMENT, naming what was wrong and what was expected.
#ifndef PERIGEE_KERNELS_RANK_PRODUCER_CHECKS_H_
#define PERIGEE_KERNELS_RANK_PRODUCER_CHECKS_H_

#include "absl/status/status.h"
#include "kernels/rank/publication_checks.h"
#include "kernels/rank/rank_shape.h"
#include "kernels/row_producer.h"

namespace perigee {

absl::Status CheckProduce(const RankShape& shape, const ProductInput& input,
                          const BFloat16* output);
absl::Status CheckProduceInto(const RankShape& shape, const ProductInput& input,
                              const TargetFacts& target);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_PRODUCER_CHECKS_H_
