// Step 9 of planning on the device: the lists of duplicate rows, from the map that source ranks
// wrote into this rank's shard (send_routes.cuh). What a peer wrote is never used as an index
// unchecked. Groups are listed as warps come to them: whoever wants them in the order of
// docs/planning.md sorts them (cuda_plan.cc); sums and copies are the same in any.
#ifndef PERIGEE_KERNELS_CUDA_LIST_DUPLICATES_CUH_
#define PERIGEE_KERNELS_CUDA_LIST_DUPLICATES_CUH_

#include <cstdint>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/group_rows.cuh"
#include "kernels/cuda/planning_memory.cuh"
#include "kernels/cuda/send_routes.cuh"
#include "kernels/cuda/warp_algorithms.cuh"

namespace perigee {

__device__ inline void ReportLink(const PathView& path, const OperationMark& mark, int32_t row,
                                  int32_t primary, int32_t ordinal) {
  if (!BreakPath(path)) return;
  Report& report = path.page->report;
  report.phase = static_cast<uint32_t>(Phase::kExit);
  report.row = row;
  report.primary = primary;
  report.ordinal = ordinal;
  Publish(report, mark, ReportKind::kLinks);
}

// What the map says of four neighbouring rows, a byte each. Rows past the used ones have no links:
// the owner has cleared them and nobody writes there.
struct LinkedQuad {
  uint32_t ordinals = 0;
  uint32_t primaries = 0;  // kHasDuplicates of each row that has some

  __device__ explicit LinkedQuad(uint32_t said)
      : ordinals(said), primaries(said & (0x01010101u * kHasDuplicates)) {}
  __device__ uint32_t groups() const { return __popc(primaries); }
  __device__ uint32_t duplicates() const {
    return __dp4a(ordinals & (primaries / kHasDuplicates * kDuplicateCount), 0x01010101u, 0u);
  }
};

// The group of one primary row into its places in the lists.
__device__ inline void ListGroup(const PathView& path, const OperationMark& mark,
                                 const PlanView& plan, int32_t used, int32_t row, uint32_t said,
                                 int32_t group, int32_t start) {
  const ShardView& own = path.shards[path.rank];
  const auto count = static_cast<int32_t>(said & kDuplicateCount);
  if (row >= used || count >= path.geometry.topk) return ReportLink(path, mark, row, -1, count);
  const uint32_t flag = (said & kExpandedAtSource) != 0 ? kOwnGroup : 0;
  plan.duplicate_groups[group] = {row, start, static_cast<uint32_t>(count) | flag};
  int32_t at = row;
#pragma unroll 1
  for (int32_t ordinal = 1; ordinal <= count; ++ordinal) {
    at = own.duplicate_primary[at];
    if (at < 0 || at >= used) return ReportLink(path, mark, row, at, ordinal);
    plan.duplicate_rows[start + ordinal - 1] = at;
  }
}

// All blocks, when all ranks have arrived with what they sent; the counts of the plan are zero.
__device__ inline void ListDuplicates(const PathView& path, const OperationMark& mark,
                                      const PlanView& plan, int32_t used) {
  const auto* quads = reinterpret_cast<const uint32_t*>(path.shards[path.rank].duplicate_ordinal);
  const int32_t end = (used + 3) / 4;
  const auto step = static_cast<int32_t>(gridDim.x * kDispatchThreads);
  int32_t first = static_cast<int32_t>(blockIdx.x) * kDispatchThreads + WarpOfBlock() * kWarp;
#pragma unroll 1
  for (; first < end; first += step) {
    const int32_t at = first + LaneId();
    const LinkedQuad quad(at < end ? quads[at] : 0);
    // A warp's are below 2^16 of each.
    const uint32_t here = quad.groups() << 16 | quad.duplicates();
    const auto up_to_here = static_cast<uint32_t>(WarpPrefixSum(static_cast<int32_t>(here)));
    const uint32_t all = __shfl_sync(0xffffffffu, up_to_here, kWarp - 1);
    if (all == 0) continue;
    unsigned long long before = 0;
    if (LaneId() == 0) {
      before = atomicAdd(reinterpret_cast<unsigned long long*>(plan.counts),
                         static_cast<unsigned long long>(all & 0xffffu) << 32 | all >> 16);
    }
    before = __shfl_sync(0xffffffffu, before, 0);
    auto group = static_cast<int32_t>(before & 0xffffffffu);
    auto start = static_cast<int32_t>(before >> 32);
    // There cannot be more than there are rows: all that is written lies in the lists. No number
    // wraps around, as every warp stops at the first that is too large.
    if (uint64_t{before & 0xffffffffu} + (before >> 32) + (all >> 16) + (all & 0xffffu) >
        static_cast<uint64_t>(used)) {
      return ReportLink(path, mark, -1, -1, start);
    }
    group += static_cast<int32_t>((up_to_here - here) >> 16);
    start += static_cast<int32_t>((up_to_here - here) & 0xffffu);
    for (uint32_t primaries = quad.primaries; primaries != 0; primaries &= primaries - 1) {
      const int shift = (__ffs(primaries) - 1) / 8 * 8;
      const uint32_t said = quad.ordinals >> shift & 0xffu;
      ListGroup(path, mark, plan, used, 4 * at + shift / 8, said, group++, start);
      start += static_cast<int32_t>(said & kDuplicateCount);
    }
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_LIST_DUPLICATES_CUH_
