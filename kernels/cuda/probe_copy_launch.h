// The copy that other operations are held against (DataPath::ProbeCopy).
#ifndef PERIGEE_KERNELS_CUDA_PROBE_COPY_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_PROBE_COPY_LAUNCH_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/path_view.h"

namespace perigee {

// rows rows of H elements, by a block on each of the target's SMs.
int LaunchProbeCopy(const LaunchTarget& target, const PathView& path, BFloat16* to,
                    const BFloat16* from, int64_t rows);

// Loads the kernels, which their first launch would do at a worse time.
int LoadProbeCopyKernels();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PROBE_COPY_LAUNCH_H_
