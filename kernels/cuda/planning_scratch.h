// What planning needs while it runs: device memory of one data path, used by one dispatch at a
// time, and what of it lies in a block's shared memory instead.
#ifndef PERIGEE_KERNELS_CUDA_PLANNING_SCRATCH_H_
#define PERIGEE_KERNELS_CUDA_PLANNING_SCRATCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/walk.h"

namespace perigee {

// Shared memory that each block of a dispatch takes: of 227 KiB, less what the compiler places.
inline constexpr size_t kDispatchSharedBytes = size_t{222} << 10;

// How the blocks of a dispatch share out the planning. A block plans for the tokens that it sends;
// its warps count and place the routes of runs of these: the stable order of an expert's routes is
// blocks ascending, then warps, then the order inside a run.
struct PlanningShape {
  int32_t blocks = 1;
  int32_t warps = 1;  // of a block, that count and place routes
  // What fits into shared memory, in this order; what does not lies in PlanningScratch.
  bool sums_are_shared = false;    // three words per expert
  bool counts_are_shared = false;  // [warps, E]
  bool tables_are_shared = false;  // [E, R] and [R, E]: which rank takes a route, and where

  static constexpr int32_t kMostWarps = 32;

  PERIGEE_HOST_DEVICE static constexpr PlanningShape Of(const Geometry& geometry, int32_t blocks) {
    const int64_t experts = geometry.experts;
    int64_t left = kDispatchSharedBytes / sizeof(int32_t);
    const auto take = [&left](int64_t words) {
      if (words > left) return false;
      left -= words;
      return true;
    };
    PlanningShape shape;
    shape.blocks = blocks;
    shape.sums_are_shared = take(3 * experts);
    shape.counts_are_shared = take(experts);
    shape.tables_are_shared = take(2 * experts * geometry.ranks);
    if (shape.counts_are_shared) {
      const int64_t more = left / experts;
      shape.warps += static_cast<int32_t>(more < kMostWarps - 1 ? more : kMostWarps - 1);
    }
    return shape;
  }
};

struct PlanningScratch {
  int32_t* routes = nullptr;  // [S * K] this rank's, private: what is counted is what is placed
  int32_t* block_counts = nullptr;     // [blocks, E] routes
  int32_t* counts = nullptr;           // [R, E] histograms, copied out of the ranks' shards
  int32_t* alloc = nullptr;            // [E, R] routes of an expert that a rank computes
  int32_t* group_start = nullptr;      // [R, E] first row of an expert's group on a rank
  int32_t* slot_of = nullptr;          // [R, E] slot that holds the expert, -1 = none
  int32_t* duplicate_start = nullptr;  // [NvS] where a primary's duplicates begin in the list
  uint64_t* list_sums = nullptr;       // [blocks] duplicate groups << 32 | duplicates
  // Where they are not shared: [blocks, 3, E] and [blocks, warps, E].
  int32_t* sums = nullptr;
  int32_t* warp_counts = nullptr;
};

// One walk gives both: with base null only *size_bytes means something.
inline PlanningScratch PlacePlanningScratch(const Geometry& geometry, int32_t blocks,
                                            std::byte* base, size_t* size_bytes) {
  const int64_t experts = geometry.experts;
  const int64_t ranks = geometry.ranks;
  const PlanningShape shape = PlanningShape::Of(geometry, blocks);
  LayoutWalk walk;
  const auto place = [&](int64_t count) {
    return reinterpret_cast<int32_t*>(reinterpret_cast<uintptr_t>(base) +
                                      walk.Place<int32_t>(count, 16));
  };
  PlanningScratch scratch;
  scratch.routes = place(geometry.routes());
  scratch.block_counts = place(blocks * experts);
  scratch.counts = place(ranks * experts);
  scratch.alloc = place(experts * ranks);
  scratch.group_start = place(ranks * experts);
  scratch.slot_of = place(ranks * experts);
  scratch.duplicate_start = place(geometry.logical_rows());
  scratch.list_sums = reinterpret_cast<uint64_t*>(place(int64_t{2} * blocks));
  if (!shape.sums_are_shared) scratch.sums = place(3 * blocks * experts);
  if (!shape.counts_are_shared) scratch.warp_counts = place(blocks * shape.warps * experts);
  *size_bytes = walk.size_bytes(256);
  return scratch;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PLANNING_SCRATCH_H_
