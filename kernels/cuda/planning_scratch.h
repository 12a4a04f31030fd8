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

// Which ranks take an expert's routes, and where.
struct GroupTables {
  int32_t* alloc = nullptr;        // [R, E] routes of an expert that a rank computes
  int32_t* group_start = nullptr;  // [R, E] first row of an expert's group on a rank
  int32_t* lower = nullptr;        // [E] routes that lower ranks have
  int32_t* whole_at = nullptr;  // [E] the rank that computes all of an expert's routes, -1: several
  int32_t* work = nullptr;      // [3, E] for single steps

  PERIGEE_HOST_DEVICE static constexpr int64_t Words(const Geometry& geometry) {
    return int64_t{geometry.experts} * (2 * int64_t{geometry.ranks} + 5);
  }
  PERIGEE_HOST_DEVICE static GroupTables At(int32_t* words, const Geometry& geometry) {
    const int64_t experts = geometry.experts;
    const int64_t table = experts * geometry.ranks;
    int32_t* sums = words + 2 * table;
    return {words, words + table, sums, sums + experts, sums + 2 * experts};
  }
};

// How the blocks of a dispatch share out the planning. A block plans for the tokens that it sends;
// its warps count and place the routes of runs of these: the stable order of an expert's routes is
// blocks ascending, then warps, then the order inside a run.
struct PlanningShape {
  int32_t blocks = 1;
  int32_t warps = 1;  // of a block, that count and place routes
  // What fits into shared memory, in this order; what does not lies in PlanningScratch.
  bool sums_are_shared = false;    // a word per expert
  bool counts_are_shared = false;  // [warps, E]
  bool tables_are_shared = false;  // GroupTables: then each block makes its own, else one for all

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
    shape.sums_are_shared = take(experts);
    shape.counts_are_shared = take(experts);
    shape.tables_are_shared = take(GroupTables::Words(geometry));
    if (shape.counts_are_shared) {
      const int64_t more = left / experts;
      shape.warps += static_cast<int32_t>(more < kMostWarps - 1 ? more : kMostWarps - 1);
    }
    return shape;
  }
};

struct PlanningScratch {
  int32_t* routes = nullptr;  // [S * K] this rank's, private: what is counted is what is placed
  int32_t* block_counts = nullptr;  // [blocks, E] routes
  // Where they are not shared: [blocks, E], [blocks, warps, E], and GroupTables.
  int32_t* sums = nullptr;
  int32_t* warp_counts = nullptr;
  int32_t* tables = nullptr;
};

// One walk gives both: with base null only *size_bytes means something.
inline PlanningScratch PlacePlanningScratch(const Geometry& geometry, int32_t blocks,
                                            std::byte* base, size_t* size_bytes) {
  const int64_t experts = geometry.experts;
  const PlanningShape shape = PlanningShape::Of(geometry, blocks);
  LayoutWalk walk;
  const auto place = [&](int64_t count) {
    return reinterpret_cast<int32_t*>(reinterpret_cast<uintptr_t>(base) +
                                      walk.Place<int32_t>(count, 16));
  };
  PlanningScratch scratch;
  scratch.routes = place(geometry.routes());
  scratch.block_counts = place(blocks * experts);
  if (!shape.sums_are_shared) scratch.sums = place(blocks * experts);
  if (!shape.counts_are_shared) scratch.warp_counts = place(blocks * shape.warps * experts);
  if (!shape.tables_are_shared) scratch.tables = place(GroupTables::Words(geometry));
  *size_bytes = walk.size_bytes(256);
  return scratch;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PLANNING_SCRATCH_H_
