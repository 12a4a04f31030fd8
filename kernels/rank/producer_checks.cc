#include "kernels/rank/producer_checks.h"

#include "absl/strings/str_cat.h"
#include "kernels/plan/validate.h"
#include "kernels/rank/argument_checks.h"

namespace perigee {
namespace {

absl::Status CheckFactors(const RankShape& shape, const ProductInput& input) {
  absl::Status status = ValidateTokenCount(shape.geometry, shape.rank, input.token_count);
  if (!status.ok()) return status;
  if (input.depth <= 0 || input.depth % 8 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the depth of the product is ", input.depth,
                                                   ", expected a positive multiple of 8"));
  }
  if (input.token_count == 0) return absl::OkStatus();
  if (input.a == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("a is null, expected ", input.token_count,
                                                   " rows of ", input.depth, " elements"));
  }
  if (input.b == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("b is null, expected ", input.depth, " rows of ", shape.hidden, " elements"));
  }
  const size_t a_bytes = sizeof(BFloat16) * input.token_count * input.depth;
  status = CheckOutsideShard(shape, "a", input.a, a_bytes);
  return status.ok() ? CheckOutsideShard(shape, "b", input.b, shape.row_bytes(input.depth))
                     : status;
}

}  // namespace

absl::Status CheckProduce(const RankShape& shape, const ProductInput& input,
                          const BFloat16* output) {
  if (absl::Status status = CheckFactors(shape, input); !status.ok()) return status;
  if (input.token_count == 0) return absl::OkStatus();
  if (output == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("output is null, expected ", input.token_count, " rows"));
  }
  return CheckOutsideShard(shape, "output", output, shape.row_bytes(input.token_count));
}

absl::Status CheckProduceInto(const RankShape& shape, const ProductInput& input,
                              const TargetFacts& target) {
  if (absl::Status status = CheckTarget(shape, target); !status.ok()) return status;
  if (input.token_count != target.token_count) {
    return absl::InvalidArgumentError(absl::StrCat("the product has ", input.token_count,
                                                   " rows, its target has ", target.token_count,
                                                   " tokens"));
  }
  return CheckFactors(shape, input);
}

}  // namespace perigee
