// One rank's part of `perigee run moe-step`: forward and backward of all layers through a local
// client, the experts' backward computed here.
#ifndef PERIGEE_CLIENT_CLI_RUN_STEP_RANK_H_
#define PERIGEE_CLIENT_CLI_RUN_STEP_RANK_H_

#include <array>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cli/run/step_input.h"
#include "client/lib/local_client.h"
#include "kernels/common/bfloat16.h"
#include "proto/v1/program.pb.h"

namespace perigee {

inline constexpr uint64_t kStepWeightsVersion = 1;

// What a step has left on one rank, of its S tokens and its E/R experts.
struct StepOutcome {
  struct Layer {
    std::vector<float> route_weight_grad;              // [S, K]
    std::vector<float> gate_grad, up_grad, down_grad;  // [E/R, ..]
    friend bool operator==(const Layer&, const Layer&) = default;
  };
  std::vector<BFloat16> output;       // [S, H]
  std::vector<BFloat16> hidden_grad;  // [S, H]
  std::vector<Layer> layers;
  int32_t replicas = 0;  // of all layers
  friend bool operator==(const StepOutcome&, const StepOutcome&) = default;
};

// From one thread. Borrows what it is made of.
class StepRank {
 public:
  StepRank(LocalClient& client, const StepInput& input, std::stop_token stop)
      : client_(client), input_(input), sizes_(input.sizes), stop_(std::move(stop)) {}

  // A whole step, whose gradients replace those of the last one. All ranks take it
  // together. The status of the first operation that failed names the operation; CANCELLED after a
  // stop request.
  absl::StatusOr<StepOutcome> Run();
  // Time of each operation so far, in the order in which they first ran.
  const std::vector<v1::OperationTiming>& timings() const { return timings_; }

 private:
  // What backward needs of a layer. Of every second one the rows are copied out of the shard; of
  // the others they are dispatched again by the plan.
  struct Kept {
    std::vector<BFloat16> hidden;           // [S, H] the layer's input
    std::vector<BFloat16> rows;             // [NvS, H]; empty: not copied
    std::vector<float> row_weights;         // [NvS]
    std::vector<int32_t> cu_seqlens;        // [E + B]
    std::vector<int32_t> zero_fill;         // [E + B, 2]
    std::vector<int32_t> experts_in_slots;  // [B]
  };
  // Gradients of some experts on their way between the worker and here: gate, up, down.
  using Sums = std::array<std::vector<float>, 3>;

  absl::StatusOr<std::vector<BFloat16>> Forward(int32_t layer, std::vector<BFloat16> hidden);
  absl::StatusOr<std::vector<BFloat16>> Backward(int32_t layer, const std::vector<BFloat16>& grad,
                                                 StepOutcome::Layer& found);
  absl::Status KeepPlan(Kept& kept);
  absl::Status KeepRows(Kept& kept);
  // Writes the gradients of rows and row weights into the shard and adds those of the experts to
  // theirs.
  absl::Status ExpertsBackward(int32_t layer, const Kept& kept);
  // Of the layer's own experts, or of the slots where layer is kSlots.
  static constexpr int32_t kSlots = -1;
  float* SumsAt(int32_t layer, int matrix) const;
  absl::StatusOr<Sums> ReadSums(int32_t layer) const;
  absl::Status WriteSums(int32_t layer, const Sums& sums) const;
  absl::Status Do(const LocalOperation& operation);

  int32_t tokens() const { return client_.geometry().tokens; }
  int64_t first_token() const { return int64_t{client_.rank().value} * tokens(); }

  LocalClient& client_;
  const StepInput& input_;
  const StepSizes& sizes_;
  const std::stop_token stop_;
  std::vector<Kept> kept_;
  std::vector<v1::OperationTiming> timings_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_STEP_RANK_H_
