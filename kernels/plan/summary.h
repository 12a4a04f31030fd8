// What a plan does to the load of the ranks, in the numbers people compare.
#ifndef PERIGEE_KERNELS_PLAN_SUMMARY_H_
#define PERIGEE_KERNELS_PLAN_SUMMARY_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/plan/placement.h"

namespace perigee {

// [R] routes to each rank's home experts: the load it would have without balancing.
std::vector<int32_t> HomeLoads(const Placement& placement);
// [E] routes to each expert.
std::vector<int32_t> ExpertLoads(const Placement& placement);

// [R] rows a rank would use without balancing: its home experts' groups, padded.
std::vector<int64_t> HomeRows(const Placement& placement);

// The largest value over the mean; 1 where there is nothing.
double HottestOverMean(absl::Span<const int32_t> loads);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_SUMMARY_H_
