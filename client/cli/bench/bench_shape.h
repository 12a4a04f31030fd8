// What `perigee bench --shape` takes: S4096,H7168,K8,E256[,P128][,B32][,I1024].
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_SHAPE_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_SHAPE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "kernels/layout/geometry.h"

namespace perigee {

struct BenchShape {
  int32_t tokens = 0;             // S
  int32_t hidden = 0;             // H
  int32_t topk = 0;               // K
  int32_t experts = 0;            // E
  int32_t token_padding = 128;    // P
  absl::optional<int32_t> slots;  // B; none: E/R
  int32_t intermediate = 0;       // H' of an expert (I); 0: no experts are run

  int32_t slots_of(int32_t ranks) const { return slots.value_or(experts / ranks); }
  // In bf16.
  int64_t row_bytes() const { return int64_t{hidden} * 2; }
  int64_t expert_bytes() const { return 3 * row_bytes() * intermediate; }  // of its weights
};

// INVALID_ARGUMENT: a field that is unknown, given twice, malformed or missing, named with the
// format. Whether the sizes fit each other is for CheckBenchShape.
absl::StatusOr<BenchShape> ParseBenchShape(absl::string_view text);

// INVALID_ARGUMENT where no buffer of so many ranks can have this shape.
absl::Status CheckBenchShape(const BenchShape& shape, int32_t ranks);

Geometry GeometryOf(const BenchShape& shape, int32_t ranks);
// As --shape takes it.
std::string FormatBenchShape(const BenchShape& shape);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_SHAPE_H_
