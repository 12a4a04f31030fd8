// What planning needs while it runs: device memory of one data path, used by one dispatch at a
// time.
#ifndef PERIGEE_KERNELS_CUDA_PLANNING_SCRATCH_H_
#define PERIGEE_KERNELS_CUDA_PLANNING_SCRATCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/layout/geometry.h"
#include "kernels/layout/walk.h"

namespace perigee {

// Tokens are counted and placed in chunks, one warp each: the stable order of an expert's routes is
// chunks ascending, then the order inside a chunk.
struct RouteChunks {
  int32_t count = 1;
  int32_t tokens = 0;  // of each chunk but the last

  static constexpr int32_t kMaxChunks = 256;
  static constexpr int64_t kMaxWords = int64_t{1} << 22;  // chunks * E, 16 MiB

  static constexpr RouteChunks Of(const Geometry& geometry) {
    const int64_t by_memory = kMaxWords / geometry.experts;
    const int64_t by_work = (int64_t{geometry.routes()} + 127) / 128;
    const int64_t wanted = std::min<int64_t>({kMaxChunks, by_memory, by_work});
    RouteChunks chunks;
    chunks.count = static_cast<int32_t>(std::max<int64_t>(wanted, 1));
    chunks.tokens = (geometry.tokens + chunks.count - 1) / chunks.count;
    return chunks;
  }
};

struct PlanningScratch {
  int32_t* routes = nullptr;  // [S * K] this rank's, private: what is counted is what is placed
  int32_t* chunk_counts = nullptr;     // [chunks, E] routes, then those of earlier chunks
  int32_t* counts = nullptr;           // [R, E] histograms, copied out of the ranks' shards
  int32_t* before = nullptr;           // [E] routes of lower ranks
  int32_t* transfers = nullptr;        // [R, R] what a home rank gives to a rank
  int32_t* remaining = nullptr;        // [E] of a home's routes not yet given away
  int32_t* alloc = nullptr;            // [E, R] routes of an expert that a rank computes
  int32_t* remote = nullptr;           // [R, E/R] remote experts of a rank, unordered
  int32_t* slot_of = nullptr;          // [R, E] slot that holds the expert, -1 = none
  int32_t* group_start = nullptr;      // [R, E] first row of an expert's group on a rank
  int32_t* duplicates_of = nullptr;    // [NvS] duplicates of a row
  int32_t* duplicate_start = nullptr;  // [NvS] where they begin in the list
};

// One walk gives both: with base null only *size_bytes means something.
inline PlanningScratch PlacePlanningScratch(const Geometry& geometry, std::byte* base,
                                            size_t* size_bytes) {
  const int64_t experts = geometry.experts;
  const int64_t ranks = geometry.ranks;
  LayoutWalk walk;
  const auto place = [&](int64_t count) {
    return reinterpret_cast<int32_t*>(reinterpret_cast<uintptr_t>(base) +
                                      walk.Place<int32_t>(count));
  };
  PlanningScratch scratch;
  scratch.routes = place(geometry.routes());
  scratch.chunk_counts = place(RouteChunks::Of(geometry).count * experts);
  scratch.counts = place(ranks * experts);
  scratch.before = place(experts);
  scratch.transfers = place(ranks * ranks);
  scratch.remaining = place(experts);
  scratch.alloc = place(experts * ranks);
  scratch.remote = place(experts);
  scratch.slot_of = place(ranks * experts);
  scratch.group_start = place(ranks * experts);
  scratch.duplicates_of = place(geometry.logical_rows());
  scratch.duplicate_start = place(geometry.logical_rows());
  *size_bytes = walk.size_bytes(256);
  return scratch;
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PLANNING_SCRATCH_H_
