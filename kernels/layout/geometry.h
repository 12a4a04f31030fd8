// The integers that fix the shape of a plan. Plain: host code, device code and shared memory use
// it.
#ifndef PERIGEE_KERNELS_LAYOUT_GEOMETRY_H_
#define PERIGEE_KERNELS_LAYOUT_GEOMETRY_H_

#include <cstdint>

#include "kernels/common/host_device.h"

namespace perigee {

// Shape of one buffer's plans, equal on all ranks. ValidateGeometry (kernels/plan/validate.h) must
// have accepted it before anything else uses it.
struct Geometry {
  int32_t ranks = 0;            // R
  int32_t experts = 0;          // E, a multiple of R
  int32_t tokens = 0;           // S, capacity in tokens of one source rank
  int32_t topk = 0;             // K, routes per token
  int32_t slots = 0;            // B, prefetch slots per rank; may be 0 or more than E/R
  int32_t token_padding = 128;  // P, each non-empty group takes a multiple of this many rows

  friend constexpr bool operator==(const Geometry&, const Geometry&) = default;

  // epn: experts that live on one rank; expert e's home rank is e / epn.
  PERIGEE_HOST_DEVICE constexpr int32_t experts_per_rank() const { return experts / ranks; }
  PERIGEE_HOST_DEVICE constexpr int32_t home_rank(int32_t expert) const {
    return expert / experts_per_rank();
  }
  // N: routes of one source rank.
  PERIGEE_HOST_DEVICE constexpr int32_t routes() const { return tokens * topk; }
  // Groups of one rank: the E global experts by id, then the B slots.
  PERIGEE_HOST_DEVICE constexpr int32_t groups() const { return experts + slots; }
  // NvS: logical rows of one rank's shard. At most 2 * epn groups are non-empty and each is padded
  // by at most P - 1 rows. 64 bits: the caller checks the limit R * NvS < 2^31.
  PERIGEE_HOST_DEVICE constexpr int64_t logical_rows() const {
    return static_cast<int64_t>(tokens) * topk +
           static_cast<int64_t>(token_padding - 1) * 2 * experts_per_rank();
  }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_GEOMETRY_H_
