// The step of local_client_bench by direct calls: the same kernels in this process, a thread for
// each rank, with no worker, ring or client around them.
#ifndef PERIGEE_TESTS_BENCH_DIRECT_STEP_H_
#define PERIGEE_TESTS_BENCH_DIRECT_STEP_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/layout/geometry.h"

namespace perigee {

struct StepShape {
  Geometry geometry;
  int32_t hidden = 0;
  int32_t intermediate = 0;
};

// The expert of a route, everywhere in this bench: every expert gets as many.
inline int32_t StepExpert(const StepShape& shape, int64_t route) {
  return static_cast<int32_t>(route % shape.geometry.experts);
}

// [rounds] of rank 0, each from a barrier of all ranks on, when all has been touched once.
absl::StatusOr<std::vector<absl::Duration>> TimeDirectSteps(Backend& backend,
                                                            const StepShape& shape, int rounds);

}  // namespace perigee

#endif  // PERIGEE_TESTS_BENCH_DIRECT_STEP_H_
