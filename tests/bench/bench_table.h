// Times as the benches of local clients print them: under what they were taken, then a line of
// percentiles for each thing measured, in microseconds.
#ifndef PERIGEE_TESTS_BENCH_BENCH_TABLE_H_
#define PERIGEE_TESTS_BENCH_BENCH_TABLE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace perigee {

// Machine, build and commit; a figure without them is no figure. The commit is PERIGEE_COMMIT's
// where that is set, else that of the checkout that `bazel run` was called in.
void PrintCircumstances();
void PrintTimesHeader();
// There is at least one time.
void PrintTimes(const std::string& what, std::vector<absl::Duration> times);
absl::Duration Median(std::vector<absl::Duration> times);

}  // namespace perigee

#endif  // PERIGEE_TESTS_BENCH_BENCH_TABLE_H_
