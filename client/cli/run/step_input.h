// What `perigee run moe-step` computes with: tokens, what the loss says of the last layer's output,
// and the layers.
#ifndef PERIGEE_CLIENT_CLI_RUN_STEP_INPUT_H_
#define PERIGEE_CLIENT_CLI_RUN_STEP_INPUT_H_

#include <cstdint>
#include <vector>

#include "client/cli/run/layer_input.h"
#include "client/lib/rank_tensors.h"
#include "kernels/common/bfloat16.h"

namespace perigee {

struct StepSizes {
  int64_t tokens = 0;  // of all ranks, T
  int32_t hidden = 0;
  int32_t intermediate = 0;
  int32_t topk = 0;
  int32_t experts = 0;
  int32_t layers = 1;
  int64_t matrix_elements() const { return int64_t{hidden} * intermediate; }
};

struct StepLayer {
  std::vector<int32_t> topk_experts;  // [T, K], -1 = masked
  std::vector<float> route_weights;   // [T, K]
  std::vector<BFloat16> gate, up;     // [E, H, H']
  std::vector<BFloat16> down;         // [E, H', H]

  LayerWeights weights(const StepSizes& sizes) const;
};

// Every layer's output is the next one's input.
struct StepInput {
  StepSizes sizes;
  std::vector<BFloat16> hidden;       // [T, H]
  std::vector<BFloat16> output_grad;  // [T, H]
  std::vector<StepLayer> layers;
};

// The same for the same seed. Low experts are wanted more than others, so that there are replicas;
// a tenth of the routes is masked. topk <= experts.
StepInput RandomStep(const StepSizes& sizes, uint64_t seed);
// Tokens, routes and weights of a file, in each layer the same; the gradient is random.
StepInput StepOfFile(const LayerInput& file, int32_t layers, uint64_t seed);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_STEP_INPUT_H_
