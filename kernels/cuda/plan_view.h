// A plan as kernels see it, and how it lies in device memory.
#ifndef PERIGEE_KERNELS_CUDA_PLAN_VIEW_H_
#define PERIGEE_KERNELS_CUDA_PLAN_VIEW_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/walk.h"

namespace perigee {

// In DeviceDuplicateGroup::count_and_flag: the token is this rank's own, so the duplicates are
// written with the primary row.
inline constexpr uint32_t kOwnGroup = 0x80000000u;

// One primary row with duplicates: rows [start, start + count) of PlanView::duplicate_rows.
struct DeviceDuplicateGroup {
  int32_t primary_row = 0;
  int32_t start = 0;
  uint32_t count_and_flag = 0;

  PERIGEE_HOST_DEVICE int32_t count() const {
    return static_cast<int32_t>(count_and_flag & ~kOwnGroup);
  }
  PERIGEE_HOST_DEVICE bool is_own() const { return (count_and_flag & kOwnGroup) != 0; }
};
static_assert(sizeof(DeviceDuplicateGroup) == 12);

struct PlanCounts {
  int32_t duplicate_groups = 0;
  int32_t duplicate_rows = 0;
};

// The tensors of kernels/backend.h's PlanTensors, this rank's unless it says otherwise.
struct PlanView {
  PlanCounts* counts = nullptr;
  int32_t* dst = nullptr;                            // [S * K]
  int32_t* cu_seqlens = nullptr;                     // [E + B]
  int32_t* zero_fill_ranges = nullptr;               // [E + B, 2]
  int32_t* experts_to_copy = nullptr;                // [R, B], all ranks'
  int32_t* load = nullptr;                           // [R], all ranks'
  int32_t* home_load = nullptr;                      // [R], all ranks'
  int32_t* remote_stats = nullptr;                   // [2]
  DeviceDuplicateGroup* duplicate_groups = nullptr;  // [NvS / 2 + 1], counts->duplicate_groups used
  int32_t* duplicate_rows = nullptr;                 // [NvS], counts->duplicate_rows used
};

// Offsets in bytes.
struct PlanLayout {
  size_t counts = 0;
  size_t dst = 0;
  size_t cu_seqlens = 0;
  size_t zero_fill_ranges = 0;
  size_t experts_to_copy = 0;
  size_t load = 0;
  size_t home_load = 0;
  size_t remote_stats = 0;
  size_t duplicate_groups = 0;
  size_t duplicate_rows = 0;
  size_t size_bytes = 0;

  static constexpr PlanLayout Create(const Geometry& geometry) {
    const int64_t rows = geometry.logical_rows();
    LayoutWalk walk;
    PlanLayout layout;
    layout.counts = walk.Place<PlanCounts>(1);
    layout.dst = walk.Place<int32_t>(geometry.routes());
    layout.cu_seqlens = walk.Place<int32_t>(geometry.groups());
    layout.zero_fill_ranges = walk.Place<int32_t>(int64_t{2} * geometry.groups());
    layout.experts_to_copy = walk.Place<int32_t>(int64_t{geometry.ranks} * geometry.slots);
    layout.load = walk.Place<int32_t>(geometry.ranks);
    layout.home_load = walk.Place<int32_t>(geometry.ranks);
    layout.remote_stats = walk.Place<int32_t>(2);
    layout.duplicate_groups = walk.Place<DeviceDuplicateGroup>(rows / 2 + 1);
    layout.duplicate_rows = walk.Place<int32_t>(rows);
    layout.size_bytes = walk.size_bytes(256);
    return layout;
  }

  PlanView View(std::byte* base) const {
    const auto ints = [base](size_t offset) { return reinterpret_cast<int32_t*>(base + offset); };
    PlanView view;
    view.counts = reinterpret_cast<PlanCounts*>(base + counts);
    view.dst = ints(dst);
    view.cu_seqlens = ints(cu_seqlens);
    view.zero_fill_ranges = ints(zero_fill_ranges);
    view.experts_to_copy = ints(experts_to_copy);
    view.load = ints(load);
    view.home_load = ints(home_load);
    view.remote_stats = ints(remote_stats);
    view.duplicate_groups = reinterpret_cast<DeviceDuplicateGroup*>(base + duplicate_groups);
    view.duplicate_rows = ints(duplicate_rows);
    return view;
  }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PLAN_VIEW_H_
