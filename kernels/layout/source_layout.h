// How one rank's source shard lies in memory: opt-in storage beside the shard, written by its owner
// alone and mapped for reading by peers. One walk gives offsets and size.
#ifndef PERIGEE_KERNELS_LAYOUT_SOURCE_LAYOUT_H_
#define PERIGEE_KERNELS_LAYOUT_SOURCE_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/common/host_device.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/layout/walk.h"

namespace perigee {

// The parts of a source shard where they are mapped. Owns nothing.
struct SourceShardView {
  BFloat16* hidden = nullptr;      // [S, H]
  float* route_weights = nullptr;  // [S, K]
  // [S, K] by kernels/plan/destination.h: where the owner's routes go by the last PrepareSource.
  int32_t* dst = nullptr;
};
static_assert(sizeof(SourceShardView) == 3 * sizeof(void*));

struct SourceLayout {
  // Offsets in bytes.
  size_t hidden = 0;
  size_t route_weights = 0;
  size_t dst = 0;
  size_t size_bytes = 0;  // a multiple of the granularity, at least one

  // The geometry is valid (kernels/plan/validate.h) and hidden > 0.
  PERIGEE_HOST_DEVICE static constexpr SourceLayout Create(
      const Geometry& geometry, int32_t hidden, size_t granularity_bytes = kHostGranularityBytes) {
    SourceLayout layout;
    LayoutWalk walk;
    layout.hidden = walk.Place<BFloat16>(int64_t{geometry.tokens} * hidden);
    layout.route_weights = walk.Place<float>(geometry.routes());
    layout.dst = walk.Place<int32_t>(geometry.routes());
    layout.size_bytes = walk.size_bytes(granularity_bytes);
    if (layout.size_bytes == 0) layout.size_bytes = granularity_bytes;
    return layout;
  }

  PERIGEE_HOST_DEVICE SourceShardView View(std::byte* base) const {
    return SourceShardView{reinterpret_cast<BFloat16*>(base + hidden),
                           reinterpret_cast<float*>(base + route_weights),
                           reinterpret_cast<int32_t*>(base + dst)};
  }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_SOURCE_LAYOUT_H_
