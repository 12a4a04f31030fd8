// The producer's product: out [n, H] = a [n, C] x b [C, H], bf16 summed in fp32 and rounded once.
#ifndef PERIGEE_KERNELS_CUDA_PRODUCT_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_PRODUCT_LAUNCH_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/path_view.h"

namespace perigee {

struct ProductArguments {
  const BFloat16* a = nullptr;  // [n, C]
  const BFloat16* b = nullptr;  // [C, H]
  int32_t depth = 0;            // C, a multiple of 8
  int32_t token_count = 0;      // n
  // Where the rows go: either of them.
  BFloat16* output = nullptr;    // [n, H]
  const int32_t* dst = nullptr;  // [S, K] of a plan: a row goes to its primary row on each rank
};

// Waits for nobody, so it is not held to the buffer's budget of SMs: a block for each tile, so that
// those of a stream of higher priority come between them.
int LaunchProduct(const LaunchTarget& target, const PathView& path,
                  const ProductArguments& arguments);

// Loads the kernels, which their first launch would do at a worse time.
int LoadProductKernels();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PRODUCT_LAUNCH_H_
