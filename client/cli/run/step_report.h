// What `perigee run moe-step` prints of steps that have ended well.
#ifndef PERIGEE_CLIENT_CLI_RUN_STEP_REPORT_H_
#define PERIGEE_CLIENT_CLI_RUN_STEP_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/cli/run/step_input.h"
#include "client/cli/run/step_rank.h"
#include "client/cli/run/step_reference.h"
#include "proto/v1/groups.pb.h"
#include "proto/v1/program.pb.h"

namespace perigee {

// A tensor of all ranks against the reference.
struct StepCheck {
  std::string what;
  double largest_absolute_error = 0;
  double relative_error = 0;  // norm of the difference over the norm of what is expected
  double limit = 0;
  bool passes() const { return relative_error <= limit; }  // not for NaN
};

// The output, the gradient of the input, and those of route weights and of gate, up and down for
// each layer. outcomes: [R], the tokens and experts of each rank in order.
std::vector<StepCheck> CheckStep(const StepSizes& sizes, const std::vector<StepOutcome>& outcomes,
                                 const StepExpected& expected);

struct StepReport {
  std::string input;  // path of the file; empty: random
  StepSizes sizes;
  int32_t slots = 0;
  int32_t token_padding = 0;
  int32_t iterations = 0;
  int32_t steps_that_differ = 0;
  int32_t seed = 0;
  int64_t replicas = 0;  // of all ranks and layers
  v1::Group group;
  std::vector<std::vector<v1::OperationTiming>> timings;  // [R]
  std::vector<StepCheck> checks;

  bool passes() const;
};

// Ends with PASS or FAIL.
std::string StepText(const StepReport& report);
// docs/cli.md names the keys.
std::string StepJson(const StepReport& report);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_STEP_REPORT_H_
