// A program of `perigee bench`, and which of its operations count for what.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_PROGRAM_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/v1/program.pb.h"

namespace perigee {

// One figure: in every iteration a time for each input, the sum of these operations' times.
struct TimedOperation {
  std::string name;
  std::vector<std::vector<int>> operations;  // [inputs] of indexes in Program.operations
};

struct BenchProgram {
  v1::Program program;  // iterations and keep_durations are not set
  std::vector<TimedOperation> timed;
};

// Operations one behind the other, timed by whole iterations.
struct BackToBackProgram {
  std::string name;
  v1::Program program;  // iterations and time_iterations are not set
  int32_t count = 0;    // an iteration is so many of what is timed
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_PROGRAM_H_
