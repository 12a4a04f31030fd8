// The data path's operations a second time, for tests: row by row and element by element, with no
// thought of speed. Shares nothing with the backends but plain types; plans come from
// kernels/plan/reference.h.
#ifndef PERIGEE_TESTS_TESTING_MOE_REFERENCE_H_
#define PERIGEE_TESTS_TESTING_MOE_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "kernels/common/bfloat16.h"
#include "kernels/layout/geometry.h"
#include "kernels/plan/reference.h"

namespace perigee {

// What a row of a shard holds after a dispatch.
struct RowSource {
  enum class Kind { kUndefined, kPadding, kRoute };
  Kind kind = Kind::kUndefined;
  int32_t rank = -1;  // of the token
  int32_t token = -1;
  int32_t k = -1;
};

// [NvS] of rank d. Every row of a group is a route's or padding; fails the test if two routes claim
// a row.
std::vector<RowSource> RowSourcesOf(const Geometry& geometry, const ReferencePlan& plan,
                                    int32_t rank);

// Nearest bf16 of a real number, ties to even; NaN stays NaN.
double RoundToBFloat16(double value);
double Value(BFloat16 bits);
BFloat16 Bits(double bfloat16_value);

// Places where a sum of rows or a feed-forward rounds to bf16; a test leaves one out to show that
// its bound notices.
struct Rounding {
  bool expert_hidden = true;  // h = silu(x @ gate) * (x @ up)
  bool expert_output = true;  // (h @ down) * weight
  bool local_sum = true;      // of a token's rows on one rank, where there are several
};

// rows [R][NvS, H] as values. The combined hidden rows [R][S, H]: for each rank that computed for a
// token, in order of the token's first route there, its rows summed in fp32 in order of k; these
// sums summed in fp32 and rounded; no rows: 0.
std::vector<std::vector<double>> CombineByTheRules(const Geometry& geometry, int32_t hidden,
                                                   const ReferencePlan& plan,
                                                   const std::vector<std::vector<double>>& rows,
                                                   const Rounding& rounding = {});

// One expert's matrices as values: gate and up [H, H'], down [H', H].
struct ExpertValues {
  std::vector<double> gate;
  std::vector<double> up;
  std::vector<double> down;
};

// One row [H] through one expert, sums in fp64.
std::vector<double> RunExpertByTheRules(const std::vector<double>& row, const ExpertValues& expert,
                                        double weight, const Rounding& rounding = {});

// Norm of the difference over the norm of expected.
double RelativeError(const std::vector<double>& actual, const std::vector<double>& expected);

}  // namespace perigee

#endif  // PERIGEE_TESTS_TESTING_MOE_REFERENCE_H_
