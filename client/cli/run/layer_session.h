// Runs a layer on a group, through losses of ranks where asked to.
//
// An attempt belongs to one generation: load the weights, write the inputs, execute what is left of
// the iterations, read the outputs. When a rank is lost, everything a worker held is gone with the
// generation; recovering is waiting for the next one and making another attempt.
#ifndef PERIGEE_CLIENT_CLI_RUN_LAYER_SESSION_H_
#define PERIGEE_CLIENT_CLI_RUN_LAYER_SESSION_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/cli/run/layer_input.h"
#include "client/cli/run/layer_path.h"
#include "client/lib/client.h"
#include "client/lib/program_monitor.h"
#include "client/lib/tensor.h"
#include "proto/v1/groups.pb.h"

namespace perigee {

struct RunLayerOptions {
  int32_t ranks = 1;
  std::string backend = "host";
  std::string transport = "nvlink";
  int32_t iterations = 1;
  int32_t token_padding = 128;
  int32_t slots = 0;
  bool wait_on_loss = false;
  LayerPath path;
};

// What a run says while it goes on.
struct RunLayerEvents {
  // One line for people, without a newline.
  std::function<void(const std::string&)> message;
  // Iterations that have ended on every rank.
  std::function<void(int32_t)> progress;
};

// Not thread-safe; a stop request ends every call but Delete with CANCELLED.
class RunLayerSession {
 public:
  // Borrows client and input.
  RunLayerSession(Client& client, const LayerInput& input, const RunLayerOptions& options,
                  RunLayerEvents events, std::stop_token stop);

  // Blocks until the outputs are here or the run has failed; what each rank said of a failure has
  // been told as messages then.
  absl::Status Run();
  // Removes the group, if there is one.
  absl::Status Delete();

  // After a run that ended well.
  const std::vector<Tensor>& outputs() const { return outputs_; }  // [R] of [S, H] bf16
  const ProgramMonitor& monitor() const { return monitor_; }
  const PathChoice& path() const { return path_; }
  const v1::Group& group() const { return group_; }                          // as it was last
  const std::vector<uint64_t>& generations() const { return generations_; }  // it ran in

 private:
  absl::Status Create();
  absl::Status Attempt();
  absl::Status WriteInputs(RankTensors& tensors) const;
  absl::Status Execute();
  absl::Status ReadOutputs(RankTensors& tensors);
  int32_t IterationsLeft() const;
  // Waits until it is sure whether `failure` is the generation's end; tells every rank's word then.
  bool GenerationHasEnded(const absl::Status& failure);
  void TellRanks(const absl::Status& failure) const;
  absl::Status Recover();

  Client& client_;
  const LayerInput& input_;
  const RunLayerOptions options_;
  const RunLayerEvents events_;
  const std::stop_token stop_;
  v1::Group group_;
  PathChoice path_;  // that the rows take
  std::string buffer_;
  ProgramMonitor monitor_;
  std::vector<Tensor> outputs_;
  std::vector<uint64_t> generations_;
  int32_t fruitless_recoveries_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_LAYER_SESSION_H_
