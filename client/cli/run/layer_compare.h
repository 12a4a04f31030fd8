// How far the outputs of a run are from what its file expects.
#ifndef PERIGEE_CLIENT_CLI_RUN_LAYER_COMPARE_H_
#define PERIGEE_CLIENT_CLI_RUN_LAYER_COMPARE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "client/lib/tensor.h"

namespace perigee {

// A run passes up to this relative error: several roundings to bf16, each 2^-9 at most.
inline constexpr double kRelativeErrorLimit = 5e-3;

struct Comparison {
  double largest_absolute_error = 0;
  double relative_error = 0;  // norm of the difference over the norm of what is expected
  // Elements where exactly one of both is finite, or both are not and differ. They do not count in
  // the errors.
  int64_t non_finite_mismatches = 0;

  bool passes() const {
    return non_finite_mismatches == 0 && relative_error <= kRelativeErrorLimit;
  }
};

// outputs: [S, H] bf16 of each rank in order; expected: [sum of S, H] f32, unaligned. Their sizes
// must fit (checked).
Comparison Compare(const std::vector<Tensor>& outputs, absl::Span<const std::byte> expected);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_LAYER_COMPARE_H_
