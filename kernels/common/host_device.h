// Marks functions that both the host compiler and nvcc compile for their side.
#ifndef PERIGEE_KERNELS_COMMON_HOST_DEVICE_H_
#define PERIGEE_KERNELS_COMMON_HOST_DEVICE_H_

#if defined(__CUDACC__)
#define PERIGEE_HOST_DEVICE __host__ __device__
#else
#define PERIGEE_HOST_DEVICE
#endif

#endif  // PERIGEE_KERNELS_COMMON_HOST_DEVICE_H_
