// What `perigee run moe-layer` prints of a run that has ended well.
#ifndef PERIGEE_CLIENT_CLI_RUN_LAYER_REPORT_H_
#define PERIGEE_CLIENT_CLI_RUN_LAYER_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "client/cli/run/layer_compare.h"
#include "client/lib/path_selector.h"
#include "proto/v1/groups.pb.h"
#include "proto/v1/program.pb.h"

namespace perigee {

struct RunLayerReport {
  std::string input;  // path of the file
  int64_t tokens = 0;
  int32_t hidden = 0;
  int32_t intermediate = 0;
  int32_t topk = 0;
  int32_t experts = 0;
  int32_t slots = 0;
  int32_t token_padding = 0;
  int32_t iterations = 0;
  PathChoice path;  // that the rows took
  v1::Group group;  // as it was last
  std::vector<uint64_t> generations;
  std::vector<v1::PlanSummary> plans;                     // [R]
  std::vector<std::vector<v1::OperationTiming>> timings;  // [R] of [operations]
  absl::optional<Comparison> comparison;                  // none: nothing to compare with
};

// Ends with PASS, FAIL or, without a comparison, a line that says so.
std::string RunLayerText(const RunLayerReport& report);
// docs/cli.md names the keys.
std::string RunLayerJson(const RunLayerReport& report);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_LAYER_REPORT_H_
