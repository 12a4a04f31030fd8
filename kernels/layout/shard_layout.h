// How one rank's shard of a symmetric buffer lies in memory. One walk gives offsets and size; every
// rank of a group has the same layout. Host and device code, coordinator and client (sizes) use it.
//
// It has two parts, which may be memory apart: the words by which ranks understand each other, and
// the rows with their weights, which a local client may have, too. Where a buffer has
// dispatch-output slots (kernels/buffer_rings.h), the second part goes on with an area of rows and
// weights for each.
#ifndef PERIGEE_KERNELS_LAYOUT_SHARD_LAYOUT_H_
#define PERIGEE_KERNELS_LAYOUT_SHARD_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/common/host_device.h"
#include "kernels/layout/control_page.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/walk.h"

namespace perigee {

// Memory granularity of the host backend, in bytes.
inline constexpr size_t kHostGranularityBytes = 4096;

// What a source rank says about its routes before a dispatch, beside its histogram.
struct alignas(8) PlanningHeader {
  int32_t token_count = 0;  // n_r
  // The first route whose id is out of range, where EntryRecord's flag says that there is one.
  int32_t bad_token = -1;
  int32_t bad_k = -1;
  int32_t bad_value = 0;
};
static_assert(sizeof(PlanningHeader) == 16);

// The parts of a shard where they are mapped, for loops and kernels. Owns nothing.
struct ShardView {
  ControlPage* control = nullptr;
  PlanningHeader* planning = nullptr;  // [2] by sequence parity; written by the owner
  int32_t* histograms = nullptr;       // [2, E] routes of the owner to each expert; likewise
  // [NvS] by source ranks: of a duplicate, its primary row, else -1. On the CUDA backend a chain
  // from a primary through its duplicates (kernels/cuda/send_routes.cuh).
  int32_t* duplicate_primary = nullptr;
  // [NvS] likewise: a duplicate's place among those of its token here (DuplicateLink,
  // kernels/plan/destination.h). Of a primary: 0 on the host backend, the number of its duplicates
  // and a flag on the CUDA backend (kernels/cuda/send_routes.cuh).
  uint8_t* duplicate_ordinal = nullptr;
  BFloat16* rows = nullptr;      // [NvS_padded, H]
  float* row_weights = nullptr;  // [NvS]
};
static_assert(sizeof(ShardView) == 7 * sizeof(void*));

struct ShardLayout {
  // Offsets in bytes.
  size_t control = 0;
  size_t planning = 0;
  size_t histograms = 0;
  size_t duplicate_primary = 0;
  size_t duplicate_ordinal = 0;
  size_t rows = 0;  // a multiple of the granularity; the second part begins with them
  size_t row_weights = 0;
  size_t area_bytes = 0;     // of rows with their weights; a slot's area follows the one before it
  int32_t ring_slots = 0;    // areas besides the first
  int64_t logical_rows = 0;  // NvS
  int64_t padded_rows = 0;   // NvS_padded: the rows' bytes are a multiple of the granularity
  size_t size_bytes = 0;     // of the whole shard, a multiple of the granularity

  // The geometry is valid (kernels/plan/validate.h), hidden > 0, ring_slots >= 0 and
  // granularity_bytes a power of two of at least 64.
  PERIGEE_HOST_DEVICE static constexpr ShardLayout Create(
      const Geometry& geometry, int32_t hidden, int32_t ring_slots = 0,
      size_t granularity_bytes = kHostGranularityBytes) {
    ShardLayout layout;
    layout.ring_slots = ring_slots;
    layout.logical_rows = geometry.logical_rows();
    layout.padded_rows = PadRows(layout.logical_rows, hidden, granularity_bytes);
    LayoutWalk walk;
    layout.control = walk.Place<ControlPage>(1);
    layout.planning = walk.Place<PlanningHeader>(2);
    layout.histograms = walk.Place<int32_t>(2 * static_cast<int64_t>(geometry.experts));
    layout.duplicate_primary = walk.Place<int32_t>(layout.logical_rows);
    layout.duplicate_ordinal = walk.Place<uint8_t>(layout.logical_rows);
    layout.rows = walk.Place<BFloat16>(layout.padded_rows * hidden, granularity_bytes);
    layout.row_weights = walk.Place<float>(layout.logical_rows);
    layout.area_bytes = walk.size_bytes(granularity_bytes) - layout.rows;
    layout.size_bytes = layout.rows + layout.area_bytes * (1 + static_cast<size_t>(ring_slots));
    return layout;
  }

  // Sizes of the two parts.
  PERIGEE_HOST_DEVICE constexpr size_t words_bytes() const { return rows; }
  PERIGEE_HOST_DEVICE constexpr size_t rows_bytes() const { return size_bytes - rows; }
  // Of the row weights, from the beginning of the second part.
  PERIGEE_HOST_DEVICE constexpr size_t row_weights_in_part() const { return row_weights - rows; }

  PERIGEE_HOST_DEVICE ShardView View(std::byte* words, std::byte* rows_part) const {
    return ShardView{reinterpret_cast<ControlPage*>(words + control),
                     reinterpret_cast<PlanningHeader*>(words + planning),
                     reinterpret_cast<int32_t*>(words + histograms),
                     reinterpret_cast<int32_t*>(words + duplicate_primary),
                     reinterpret_cast<uint8_t*>(words + duplicate_ordinal),
                     reinterpret_cast<BFloat16*>(rows_part),
                     reinterpret_cast<float*>(rows_part + row_weights_in_part())};
  }
  // The same where rows and weights are those of a slot, in [0, ring_slots).
  PERIGEE_HOST_DEVICE ShardView SlotView(std::byte* words, std::byte* rows_part,
                                         int32_t slot) const {
    return View(words, rows_part + area_bytes * (1 + static_cast<size_t>(slot)));
  }
  // Of a shard in one piece.
  PERIGEE_HOST_DEVICE ShardView View(std::byte* base) const { return View(base, base + rows); }

 private:
  // The least row count >= rows whose bytes are a multiple of the granularity.
  PERIGEE_HOST_DEVICE static constexpr int64_t PadRows(int64_t rows, int32_t hidden,
                                                       size_t granularity_bytes) {
    const size_t row_bytes = static_cast<size_t>(hidden) * sizeof(BFloat16);
    const size_t common = row_bytes & (~row_bytes + 1);  // its largest power of two
    const size_t step = common >= granularity_bytes ? 1 : granularity_bytes / common;
    return static_cast<int64_t>(LayoutWalk::AlignUp(static_cast<size_t>(rows), step));
  }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_SHARD_LAYOUT_H_
