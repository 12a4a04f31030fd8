// One walk over a struct's parts gives both each part's offset and the size of the whole, so that
// the two cannot disagree.
#ifndef PERIGEE_KERNELS_LAYOUT_WALK_H_
#define PERIGEE_KERNELS_LAYOUT_WALK_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"

namespace perigee {

class LayoutWalk {
 public:
  // Places `count` elements of T at the next multiple of `alignment` (a power of two) and returns
  // their offset in bytes.
  template <typename T>
  PERIGEE_HOST_DEVICE constexpr size_t Place(int64_t count, size_t alignment = 64) {
    const size_t offset = AlignUp(size_bytes_, alignment);
    size_bytes_ = offset + static_cast<size_t>(count) * sizeof(T);
    return offset;
  }
  PERIGEE_HOST_DEVICE constexpr size_t size_bytes(size_t granularity) const {
    return AlignUp(size_bytes_, granularity);
  }
  PERIGEE_HOST_DEVICE static constexpr size_t AlignUp(size_t value, size_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
  }

 private:
  size_t size_bytes_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_WALK_H_
