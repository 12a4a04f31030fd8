// Programmatic dependent launch: a kernel may begin before the one ahead of it in the stream has
// ended, and waits for its end where it needs what it did. Source: PTX ISA, griddepcontrol.
#ifndef PERIGEE_KERNELS_CUDA_DEPENDENT_LAUNCH_CUH_
#define PERIGEE_KERNELS_CUDA_DEPENDENT_LAUNCH_CUH_

#include <cuda_runtime_api.h>

#include "kernels/cuda/launch.h"

namespace perigee {

// The kernel behind this one may begin once all blocks have called it or have ended. Not before all
// ranks are past this operation's last wait: blocks that begin early hold SMs, which another rank's
// kernel on the same device may need for this one to end.
__device__ inline void LaunchDependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
// Returns when the kernel ahead has ended and all that it stored is seen. At once where the launch
// is an ordinary one.
__device__ inline void AwaitKernelAhead() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Launches a kernel that calls AwaitKernelAhead before it looks at anything that the kernel ahead
// or one before that may write.
template <typename... Parameters, typename... Arguments>
int LaunchDependent(const LaunchTarget& target, void (*kernel)(Parameters...), int blocks,
                    int threads, size_t shared_bytes, const Arguments&... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = target.stream;
  config.attrs = &attribute;
  config.numAttrs = target.programmatic_launch ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_DEPENDENT_LAUNCH_CUH_
