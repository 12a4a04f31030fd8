// Where and with how many blocks kernels are launched.
#ifndef PERIGEE_KERNELS_CUDA_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_LAUNCH_H_

#include <cstdint>

struct CUstream_st;  // cudaStream_t is a pointer to it

namespace perigee {

// Every launch function takes one, enqueues its kernels in order and returns at once: 0, or the
// cudaError_t of the launch that failed. Nothing in kernels/cuda launches a kernel in any other
// way.
struct LaunchTarget {
  CUstream_st* stream = nullptr;
  int32_t sms = 1;                  // kernels that move rows take as many blocks
  bool programmatic_launch = true;  // kernels that can may begin before the one ahead has ended
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_LAUNCH_H_
