// A training step without expert parallelism, in double precision: every token through each of its
// experts one by one, with no rounding anywhere.
#ifndef PERIGEE_CLIENT_CLI_RUN_STEP_REFERENCE_H_
#define PERIGEE_CLIENT_CLI_RUN_STEP_REFERENCE_H_

#include <vector>

#include "client/cli/run/step_input.h"

namespace perigee {

struct StepExpected {
  struct Layer {
    std::vector<double> route_weight_grad;   // [T, K]; 0 of masked routes
    std::vector<double> gate_grad, up_grad;  // [E, H, H']
    std::vector<double> down_grad;           // [E, H', H]
  };
  std::vector<double> output;       // [T, H] of the last layer
  std::vector<double> hidden_grad;  // [T, H] of the first layer's input
  std::vector<Layer> layers;
};

StepExpected ComputeStep(const StepInput& input);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_STEP_REFERENCE_H_
