// Runs training steps on a group: makes it and a buffer that keeps gradients, writes the weights,
// and takes every rank's part in a thread of its own, attached to that rank's worker.
#ifndef PERIGEE_CLIENT_CLI_RUN_STEP_SESSION_H_
#define PERIGEE_CLIENT_CLI_RUN_STEP_SESSION_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/run/step_input.h"
#include "client/cli/run/step_rank.h"
#include "client/lib/client.h"
#include "proto/v1/groups.pb.h"

namespace perigee {

struct StepOptions {
  int32_t ranks = 1;
  std::string backend = "host";
  int32_t iterations = 1;
  int32_t token_padding = 128;
  int32_t slots = 0;
};

// Not thread-safe; a stop request ends Run with CANCELLED.
class StepSession {
 public:
  // Borrows client and input.
  StepSession(Client& client, const StepInput& input, const StepOptions& options,
              std::stop_token stop)
      : client_(client), input_(input), options_(options), stop_(std::move(stop)) {}

  // Blocks until all steps are done. The first error in order of rank, naming it. The workers are
  // on this machine, or FAILED_PRECONDITION or UNAVAILABLE says that they cannot be attached to.
  absl::Status Run(const std::function<void(int32_t)>& progress);
  // Removes the group, if there is one.
  absl::Status Delete();

  // After a run that ended well.
  const std::vector<StepOutcome>& outcomes() const { return outcomes_; }  // [R] of the first step
  // Steps after the first that left other bits than it.
  int32_t steps_that_differ() const { return steps_that_differ_; }
  const std::vector<std::vector<v1::OperationTiming>>& timings() const { return timings_; }  // [R]
  const v1::Group& group() const { return group_; }

 private:
  absl::Status Create();
  absl::Status Attach();
  absl::Status Step(std::vector<StepOutcome>& outcomes);

  Client& client_;
  const StepInput& input_;
  const StepOptions options_;
  const std::stop_token stop_;
  v1::Group group_;
  std::string buffer_;
  std::vector<std::unique_ptr<LocalClient>> clients_;  // [R]
  std::vector<std::unique_ptr<StepRank>> ranks_;       // [R]
  std::vector<StepOutcome> outcomes_;
  int32_t steps_that_differ_ = 0;
  std::vector<std::vector<v1::OperationTiming>> timings_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_STEP_SESSION_H_
