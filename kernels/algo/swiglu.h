// The element-wise part of an expert's feed-forward, for host and device.
#ifndef PERIGEE_KERNELS_ALGO_SWIGLU_H_
#define PERIGEE_KERNELS_ALGO_SWIGLU_H_

#include <cmath>

#include "kernels/common/bfloat16.h"
#include "kernels/common/host_device.h"

namespace perigee {

// x * sigmoid(x). For x far below zero expf overflows to infinity and the result is -0, its limit.
PERIGEE_HOST_DEVICE inline float Silu(float x) { return x / (1.0f + expf(-x)); }

// One element of h = silu(x @ gate) * (x @ up): in fp32, rounded once.
PERIGEE_HOST_DEVICE inline BFloat16 SwiGlu(float gate, float up) {
  return ToBFloat16(Silu(gate) * up);
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_ALGO_SWIGLU_H_
