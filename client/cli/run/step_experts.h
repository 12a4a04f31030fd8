// The backward of experts on rows as they lie on a rank. Workers compute experts forward; backward
// is the framework's, and for `perigee run moe-step` this.
#ifndef PERIGEE_CLIENT_CLI_RUN_STEP_EXPERTS_H_
#define PERIGEE_CLIENT_CLI_RUN_STEP_EXPERTS_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"

namespace perigee {

struct ExpertMatrices {
  int32_t hidden = 0;              // H
  int32_t intermediate = 0;        // H'
  const BFloat16* gate = nullptr;  // [H, H']
  const BFloat16* up = nullptr;    // [H, H']
  const BFloat16* down = nullptr;  // [H', H]
};

// fp32, added to; in the shapes of the matrices.
struct ExpertSums {
  float* gate = nullptr;
  float* up = nullptr;
  float* down = nullptr;
};

// One row [H] of an expert, whose output was scaled by its route weight, and the gradient of that
// output. Sums in fp32; what the expert has between its matrices is rounded to bf16, as it was
// forward. Writes the row's gradient [H] and returns that of the route weight.
float ExpertRowBackward(const ExpertMatrices& expert, const BFloat16* row, float route_weight,
                        const BFloat16* output_grad, BFloat16* row_grad, const ExpertSums& sums);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_STEP_EXPERTS_H_
