// The sum of bf16 rows in a fixed order, a vector of 8 columns at a time: the same bits as
// kernels/algo/row_sum.h, with the conversions of the hardware.
#ifndef PERIGEE_KERNELS_CUDA_VECTOR_SUM_CUH_
#define PERIGEE_KERNELS_CUDA_VECTOR_SUM_CUH_

#include <cuda_bf16.h>

#include <cstdint>

namespace perigee {

class VectorSum {
 public:
  // The first row is taken as it is instead of added to zero.
  __device__ void Start(const uint4& vector) {
    const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums_[2 * i] = Low(words[i]);
      sums_[2 * i + 1] = High(words[i]);
    }
  }
  __device__ void Add(const uint4& vector) {
    const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums_[2 * i] += Low(words[i]);
      sums_[2 * i + 1] += High(words[i]);
    }
  }
  // Rounded once. is_sum: two rows or more; a single one comes out with its own bits but that a
  // signalling NaN becomes a quiet one.
  __device__ uint4 Rounded(bool is_sum) const {
    uint32_t words[4];
    uint32_t nan = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (is_sum) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(sums_[2 * i], sums_[2 * i + 1]);
        words[i] = *reinterpret_cast<const uint32_t*>(&pair);
        nan |= NanHalves(words[i]);
      } else {
        words[i] = Single(sums_[2 * i]) | Single(sums_[2 * i + 1]) << 16;
      }
    }
    // The hardware's NaN is 0x7fff, a sum's is kNanSum.
    if (nan != 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] ^= (NanHalves(words[i]) >> 15) * 0x3fu;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }

 private:
  static __device__ float Low(uint32_t word) { return __uint_as_float(word << 16); }
  static __device__ float High(uint32_t word) { return __uint_as_float(word & 0xffff0000u); }
  // The upper bit of each half that is 0x7fff or 0xffff.
  static __device__ uint32_t NanHalves(uint32_t word) {
    return ((word & 0x7fff7fffu) + 0x00010001u) & 0x80008000u;
  }
  static __device__ uint32_t Single(float value) {
    const uint32_t bits = __float_as_uint(value) >> 16;
    return (bits & 0x7fffu) > 0x7f80u ? bits | 0x40u : bits;
  }

  float sums_[8];
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_VECTOR_SUM_CUH_
