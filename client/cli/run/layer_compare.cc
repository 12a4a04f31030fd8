#include "client/cli/run/layer_compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/common/bfloat16.h"
#include "kernels/common/check.h"

namespace perigee {
namespace {

// Sums over the elements seen so far.
struct Sums {
  Comparison result;
  double difference_squared = 0;
  double expected_squared = 0;

  void Add(double output, double expected) {
    if (!std::isfinite(output) || !std::isfinite(expected)) {
      const bool same = (std::isnan(output) && std::isnan(expected)) || output == expected;
      if (!same) ++result.non_finite_mismatches;
      return;
    }
    const double difference = output - expected;
    result.largest_absolute_error = std::max(result.largest_absolute_error, std::abs(difference));
    difference_squared += difference * difference;
    expected_squared += expected * expected;
  }
};

}  // namespace

Comparison Compare(const std::vector<Tensor>& outputs, absl::Span<const std::byte> expected) {
  Sums sums;
  for (const Tensor& output : outputs) {
    const size_t elements = output.data.size() / sizeof(BFloat16);
    PERIGEE_CHECK(output.dtype == v1::TENSOR_DTYPE_BFLOAT16 &&
                  expected.size() >= elements * sizeof(float));
    for (size_t i = 0; i < elements; ++i) {
      BFloat16 value;
      float wanted;
      std::memcpy(&value, output.data.data() + i * sizeof(value), sizeof(value));
      std::memcpy(&wanted, expected.data() + i * sizeof(wanted), sizeof(wanted));
      sums.Add(ToFloat(value), wanted);
    }
    expected.remove_prefix(elements * sizeof(float));
  }
  PERIGEE_CHECK(expected.empty());
  const double difference = std::sqrt(sums.difference_squared);
  // Where nothing but zeros is expected, there is no scale to measure by: any difference counts.
  sums.result.relative_error = difference == 0 ? 0 : difference / std::sqrt(sums.expected_squared);
  return sums.result;
}

}  // namespace perigee
