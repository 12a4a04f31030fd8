// How long each operation of a program took, over its ranks.
#ifndef PERIGEE_CLIENT_CLI_RUN_PHASE_TIMES_H_
#define PERIGEE_CLIENT_CLI_RUN_PHASE_TIMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/output.h"
#include "proto/v1/program.pb.h"

namespace perigee {

// One operation over all ranks and iterations; a time is that of one operation on one rank, its
// waits for other ranks included.
struct PhaseTimes {
  std::string operation;
  int32_t slowest_rank = 0;    // that with the longest mean
  double slowest_mean_ns = 0;  // its mean over the iterations
  double mean_ns = 0;          // over ranks and iterations
  int64_t min_ns = 0;
  int64_t max_ns = 0;
};
// Of one rank, in nanoseconds; 0 where the operation has not ended.
double MeanTime(const v1::OperationTiming& timing);
std::vector<PhaseTimes> SummarizePhases(
    const std::vector<std::vector<v1::OperationTiming>>& timings);

// As the key "phases"; docs/cli.md has the keys of each.
void WritePhases(const std::vector<std::vector<v1::OperationTiming>>& timings, JsonWriter& json);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_PHASE_TIMES_H_
