#include <cuda_runtime_api.h>

#include "kernels/cuda/load_kernels.cuh"
#include "kernels/cuda/product_kernel.cuh"
#include "kernels/cuda/product_launch.h"

namespace perigee {

int LaunchProduct(const LaunchTarget& target, const PathView& path,
                  const ProductArguments& arguments) {
  const int64_t wide = (path.hidden + kProductColumns - 1) / kProductColumns;
  const int64_t tiles = (arguments.token_count + kProductRows - 1) / kProductRows * wide;
  if (tiles == 0) return 0;
  const auto kernel = arguments.dst != nullptr ? ProductKernel<true> : ProductKernel<false>;
  return LaunchDependent(target, kernel, static_cast<int>(tiles), kProductThreads,
                         sizeof(ProductShared), path, arguments);
}

int LoadProductKernels() {
  const int error =
      AllowSharedMemory(sizeof(ProductShared), ProductKernel<true>, ProductKernel<false>);
  return error != 0 ? error : LoadKernels(ProductKernel<true>, ProductKernel<false>);
}

}  // namespace perigee
