// What a staged data path does within one rank's memory (kernels/staged/staged_device.h has the
// meaning of each).
#ifndef PERIGEE_KERNELS_CUDA_STAGED_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_STAGED_LAUNCH_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/cuda/launch.h"

namespace perigee {

// Row i is at index[i], or at i where there is none.
struct RowListView {
  BFloat16* rows = nullptr;
  const int32_t* index = nullptr;
};
struct FloatListView {
  float* values = nullptr;
  const int32_t* index = nullptr;
};

// Zeros where from has no rows; `from` is only read. Rows begin at multiples of 16 bytes.
int LaunchCopyRows(const LaunchTarget& target, const RowListView& to, const RowListView& from,
                   int64_t count, int32_t hidden);
int LaunchCopyFloats(const LaunchTarget& target, const FloatListView& to, const FloatListView& from,
                     int64_t count);

struct RowSumsView {
  RowListView to;
  const BFloat16* from = nullptr;
  const int32_t* ends = nullptr;
  const int32_t* rows = nullptr;
  int32_t count = 0;
};
int LaunchSumRows(const LaunchTarget& target, const RowSumsView& sums, int32_t hidden);

int LaunchAddFloats(const LaunchTarget& target, float* to, const float* from, int64_t count);

// Loads the kernels, which their first launch would do at a worse time.
int LoadStagedKernels();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_STAGED_LAUNCH_H_
