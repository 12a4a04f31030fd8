// bf16 as two bytes, converted with IEEE round to nearest even, for host and device alike.
#ifndef PERIGEE_KERNELS_COMMON_BFLOAT16_H_
#define PERIGEE_KERNELS_COMMON_BFLOAT16_H_

#include <cstdint>
#include <cstring>

#include "kernels/common/host_device.h"

namespace perigee {

// The upper half of an IEEE fp32. Plain storage: arithmetic is done in fp32.
struct BFloat16 {
  uint16_t bits = 0;
  friend constexpr bool operator==(const BFloat16&, const BFloat16&) = default;  // by bits
};
static_assert(sizeof(BFloat16) == 2);

PERIGEE_HOST_DEVICE inline float ToFloat(BFloat16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// Round to nearest even. A NaN stays a NaN (its top mantissa bit is set, so that cutting the
// payload off cannot turn it into an infinity) and keeps its sign.
PERIGEE_HOST_DEVICE inline BFloat16 ToBFloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  return BFloat16{static_cast<uint16_t>(is_nan ? quiet : rounded)};
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_COMMON_BFLOAT16_H_
