// The kernels of the owner-sharded source: ranks tell each other where their routes go, and each
// fetches what belongs to it (kernels/owner_source.h).
#ifndef PERIGEE_KERNELS_CUDA_SOURCE_KERNEL_CUH_
#define PERIGEE_KERNELS_CUDA_SOURCE_KERNEL_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/dispatch_kernel.cuh"
#include "kernels/cuda/source_lists.h"

namespace perigee {

// Reads of peers' destinations that a warp has in flight: each is a trip over the link.
inline constexpr int kOriginsAhead = 4;

// Found by any warp; the first to find something is heard. rank -1: nobody is known to be at fault,
// there are `seen` rows instead of `expected`.
__device__ inline void ReportDestinations(const PathView& path, const OperationMark& mark,
                                          int32_t rank, int32_t row, int32_t seen = 0,
                                          int32_t expected = 0) {
  if (!BreakPath(path)) return;
  Report& report = path.page->report;
  report.phase = static_cast<uint32_t>(Phase::kExit);
  report.rank = rank;
  report.row = row;
  report.seen = static_cast<uint64_t>(seen);
  report.expected = expected;
  Publish(report, mark, ReportKind::kDestinations);
}

// This rank's destinations to where all ranks read them, and lists made ready for ListOrigins.
__device__ inline void TellDestinations(const PathView& path, const PlanView& plan,
                                        const SourceLists& source) {
  CopyInts(source.shards[path.rank].dst, plan.dst, path.geometry.routes());
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row == 0) *source.pull_count = 0;
  for (; row < path.logical_rows; row += step) source.origins[row] = kMaskedRoute;
}

// The routes of a few tokens of one rank, a lane a route, as far as they go to this rank.
struct RoutesHere {
  int32_t rank = 0;      // whose they are
  int32_t token = 0;     // of this lane
  int32_t row = -1;      // here; -1: none
  bool primary = false;  // that it is said to be
  uint32_t same = 0;     // lanes of the same token that have one

  __device__ bool goes() const { return row >= 0; }
  __device__ bool leads() const { return goes() && __ffs(same) - 1 == LaneId(); }
  __device__ bool repeats() const { return leads() && __popc(same) > 1; }
};

// `dst` is what the rank published for this lane.
__device__ inline RoutesHere FindRoutesHere(const PathView& path, int32_t rank, int32_t token,
                                            int32_t token_of_warp, int32_t dst) {
  RoutesHere routes;
  routes.rank = rank;
  routes.token = token;
  if (!IsMasked(dst)) {
    const uint32_t row =
        static_cast<uint32_t>(DecodeRow(dst)) -
        static_cast<uint32_t>(path.rank) * static_cast<uint32_t>(path.logical_rows);
    if (row < static_cast<uint32_t>(path.logical_rows)) routes.row = static_cast<int32_t>(row);
    routes.primary = IsPrimary(dst);
  }
  const uint32_t key = routes.goes() ? static_cast<uint32_t>(token_of_warp)
                                     : 0x80000000u + static_cast<uint32_t>(LaneId());
  routes.same = __match_any_sync(0xffffffffu, key);
  return routes;
}

// Places in the lists that the next routes take.
struct ListPlaces {
  int32_t rows = 0;
  int32_t pulls = 0;
  int32_t groups = 0;

  __device__ void Pass(const RoutesHere& routes) {
    rows += __popc(__ballot_sync(0xffffffffu, routes.goes()));
    pulls += __popc(__ballot_sync(0xffffffffu, routes.leads()));
    groups += __popc(__ballot_sync(0xffffffffu, routes.repeats()));
  }
};

// The first of as many places as `wanted` says. All lanes; false where there cannot be so many:
// some row is claimed twice then.
__device__ inline bool TakePlaces(const PlanView& plan, const SourceLists& source, int32_t used,
                                  const ListPlaces& wanted, ListPlaces* first) {
  unsigned long long before = 0;
  int32_t pulls = 0;
  if (LaneId() == 0) {
    before = atomicAdd(reinterpret_cast<unsigned long long*>(plan.counts),
                       static_cast<unsigned long long>(wanted.rows) << 32 |
                           static_cast<unsigned long long>(wanted.groups));
    pulls = atomicAdd(source.pull_count, wanted.pulls);
  }
  before = __shfl_sync(0xffffffffu, before, 0);
  first->rows = static_cast<int32_t>(before >> 32);
  first->groups = static_cast<int32_t>(before & 0xffffffffu);
  first->pulls = __shfl_sync(0xffffffffu, pulls, 0);
  return first->rows + wanted.rows <= used && first->pulls + wanted.pulls <= used;
}

// As the host's ReadSourceRows: a row of two claimants is held against the higher rank. `fits`:
// whether there are places in the lists.
__device__ inline void ListRoutesHere(const PathView& path, const OperationMark& mark,
                                      const PlanView& plan, const SourceLists& source, int32_t used,
                                      const RoutesHere& routes, const ListPlaces& at, int32_t k,
                                      bool fits) {
  const uint32_t earlier = (1u << LaneId()) - 1;
  const int32_t place = at.rows + __popc(__ballot_sync(0xffffffffu, routes.goes()) & earlier);
  const int32_t pull = at.pulls + __popc(__ballot_sync(0xffffffffu, routes.leads()) & earlier);
  const int32_t group = at.groups + __popc(__ballot_sync(0xffffffffu, routes.repeats()) & earlier);
  if (!routes.goes()) return;
  if (routes.row >= used || routes.primary != routes.leads()) {
    return ReportDestinations(path, mark, routes.rank, routes.row);
  }
  const int32_t origin =
      routes.rank * path.geometry.routes() + routes.token * path.geometry.topk + k;
  const int32_t other =
      atomicExch(&source.origins[routes.row], routes.leads() ? origin : EncodeDuplicate(origin));
  if (!IsMasked(other)) {
    const int32_t claimant = DecodeRow(other) / path.geometry.routes();
    return ReportDestinations(path, mark, max(routes.rank, claimant), routes.row);
  }
  if (!fits) return;
  plan.duplicate_rows[place] = routes.row;
  if (!routes.leads()) return;
  const int32_t count = __popc(routes.same);
  source.pulls[pull] = {routes.rank, routes.token, place, count};
  if (count == 1) return;
  const uint32_t flag = routes.rank == path.rank ? kOwnGroup : 0;
  plan.duplicate_groups[group] = {routes.row, place + 1, static_cast<uint32_t>(count - 1) | flag};
}

// All blocks, when all ranks have told their destinations: which of them are here. With them the
// plan has its duplicates, too: no map of links is needed. What a peer wrote is an index only when
// it lies within this rank's rows.
__device__ inline void ListOrigins(const PathView& path, const OperationMark& mark,
                                   const PlanView& plan, const SourceLists& source) {
  const int32_t topk = path.geometry.topk;
  const RoutesOfLane lane(topk);
  const int32_t k = LaneId() - lane.token * topk;
  const int32_t used = UsedRows(plan, path.geometry);
  const auto steps = static_cast<uint32_t>((path.geometry.tokens + lane.tokens - 1) / lane.tokens);
  const uint32_t all = steps * static_cast<uint32_t>(path.geometry.ranks);
  const uint32_t stride = gridDim.x * (kDispatchThreads / kWarp) * kOriginsAhead;
  uint32_t first = (blockIdx.x * (kDispatchThreads / kWarp) + WarpOfBlock()) * kOriginsAhead;
#pragma unroll 1
  for (; first < all; first += stride) {
    int32_t dst[kOriginsAhead];
#pragma unroll
    for (int i = 0; i < kOriginsAhead; ++i) {
      const uint32_t step = first + i;
      const auto token = static_cast<int32_t>(step % steps) * lane.tokens;
      dst[i] = kMaskedRoute;
      if (step >= all || !lane.IsRoute(token, path.geometry.tokens)) continue;
      const int32_t* from = source.shards[step / steps].dst + int64_t{token} * topk + LaneId();
      dst[i] = static_cast<int32_t>(LoadRelaxed(reinterpret_cast<const uint32_t*>(from)));
    }
    RoutesHere routes[kOriginsAhead];
    ListPlaces wanted;
#pragma unroll
    for (int i = 0; i < kOriginsAhead; ++i) {
      const uint32_t step = first + i;
      const auto token = static_cast<int32_t>(step % steps) * lane.tokens + lane.token;
      routes[i] =
          FindRoutesHere(path, static_cast<int32_t>(step / steps), token, lane.token, dst[i]);
      wanted.Pass(routes[i]);
    }
    if (wanted.rows == 0) continue;
    ListPlaces at;
    const bool fits = TakePlaces(plan, source, used, wanted, &at);
#pragma unroll
    for (int i = 0; i < kOriginsAhead; ++i) {
      ListRoutesHere(path, mark, plan, source, used, routes[i], at, k, fits);
      at.Pass(routes[i]);
    }
  }
}

// When all blocks have listed theirs, each row of one origin at most: every row with a route has
// one, and no padding has.
__device__ inline void CheckOrigins(const PathView& path, const OperationMark& mark,
                                    const PlanView& plan, const SourceLists& source) {
  const int32_t found = plan.counts->duplicate_rows;
  const int32_t expected = plan.load[path.rank];
  if (found != expected && blockIdx.x == 0 && threadIdx.x == 0) {
    ReportDestinations(path, mark, -1, -1, found, expected);
  }
  const auto step = static_cast<int32_t>(gridDim.x) * (kDispatchThreads / kWarp);
  int32_t group = static_cast<int32_t>(blockIdx.x) * (kDispatchThreads / kWarp) + WarpOfBlock();
  for (; group < path.geometry.groups(); group += step) {
    const int32_t begin = plan.zero_fill_ranges[2 * group];
    const int32_t rows = plan.zero_fill_ranges[2 * group + 1];
    for (int32_t row = begin + LaneId(); row < begin + rows; row += kWarp) {
      const int32_t origin = source.origins[row];
      if (IsMasked(origin)) continue;
      ReportDestinations(path, mark, DecodeRow(origin) / path.geometry.routes(), row);
    }
  }
}

__global__ void __launch_bounds__(kDispatchThreads, 1)
    PrepareSourceKernel(PathView path, OperationMark mark, EntryArguments entry,
                        PlanningArguments planning, SourceLists source) {
  extern __shared__ __align__(kSharedAlignment) uint4 words[];
  BarrierSite site;
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  AwaitKernelAhead();
  // Alike for all blocks: none changes it before all have begun.
  if (Stopped(path)) return DeclineInTurn(path, mark, entry);
  GridBarrier grid(path, mark);
  const PlanningMemory memory =
      PlacePlanningMemory(path, planning.scratch, reinterpret_cast<int32_t*>(words));
  // Orders also what ranks have written into their source shards before all reads by the view. The
  // shard's links may be those of a target that is being published.
  bool goes_on = MakePlan(path, mark, entry, planning, memory, site, grid, /*clears_links=*/false);
  if (goes_on) {
    TellDestinations(path, planning.plan, source);
    goes_on = Leave(path, mark, grid);
  }
  LaunchDependents();
  if (goes_on) ListOrigins(path, mark, planning.plan, source);
  if (goes_on && grid.Sync() && !Stopped(path)) CheckOrigins(path, mark, planning.plan, source);
  grid.Leave();
}

// Every route's weight that belongs here: by the warps of the blocks from `first_warp` on.
__device__ inline void PullWeights(const PathView& path, const PlanView& plan,
                                   const SourceLists& source, int32_t first_warp) {
  float* const to = path.shards[path.rank].row_weights;
  const int32_t routes = path.geometry.routes();
  const int32_t count = plan.counts->duplicate_rows;
  const auto threads = static_cast<int32_t>(kDispatchThreads) - first_warp * kWarp;
  const auto step = static_cast<int32_t>(gridDim.x) * threads;
  int32_t i = static_cast<int32_t>(blockIdx.x) * threads + static_cast<int32_t>(threadIdx.x) -
              first_warp * kWarp;
#pragma unroll 4
  for (; i < count; i += step) {
    const int32_t row = plan.duplicate_rows[i];
    const int32_t origin = DecodeRow(source.origins[row]);
    const float* from = source.shards[origin / routes].route_weights + origin % routes;
    to[row] = __ldcg(from);
  }
}

// A row at a time from its owner, a lane a place of it here.
__device__ inline void PullRows(const PathView& path, const PlanView& plan,
                                const SourceLists& source, const MoverShape& shape,
                                std::byte* shared) {
  BFloat16* const rows = path.shards[path.rank].rows;
  RowMover mover(shape, shared, WarpOfBlock());
  const RowTickets tickets(&path.grid->next[kSendQueue], *source.pull_count, shape.row_bytes);
  mover.Move(tickets, [&](int64_t i) {
    const SourcePull pull = source.pulls[i];
    RowMove move;
    move.from = RowAt(source.shards[pull.rank].hidden, pull.token, path.hidden);
    if (LaneId() < pull.count) {
      move.to = RowAt(rows, plan.duplicate_rows[pull.start + LaneId()], path.hidden);
    }
    return move;
  });
}

__global__ void __launch_bounds__(kDispatchThreads, 1)
    MaterialiseKernel(PathView path, OperationMark mark, EntryArguments entry, PlanView plan,
                      SourceLists source, MoverShape shape) {
  extern __shared__ __align__(kSharedAlignment) uint4 shared[];
  BarrierSite site;
  if (blockIdx.x == 0) site = LoadBarrierSite(path);
  AwaitKernelAhead();
  if (Stopped(path)) return DeclineInTurn(path, mark, entry);
  GridBarrier grid(path, mark);
  // Orders: peers' reads of this shard in the last combine before the stores below.
  if (blockIdx.x == 0 && !Enter(path, mark, entry, site) && threadIdx.x == 0) {
    SetVerdict(path.grid, kNotEntered);
  }
  if (grid.Sync() && !Verdict(path.grid, kNotEntered)) {
    if (WarpOfBlock() < shape.warps) {
      PullRows(path, plan, source, shape, reinterpret_cast<std::byte*>(shared));
    } else {
      PullWeights(path, plan, source, shape.warps);
      ZeroPadding(path, plan, shape.warps);
    }
    // Orders: every rank's reads of source shards before what their owners do next.
    Leave(path, mark, grid);
  }
  LaunchDependents();
  grid.Leave();
}

__global__ void __launch_bounds__(kRowThreads)
    StoreSourceKernel(PathView path, StoreSourceArguments store) {
  if (Stopped(path)) return;
  const int32_t vectors = path.hidden / kVectorElements;
  if (store.hidden != nullptr && store.hidden != store.to.hidden) {
    for (int64_t token = GridWarp(); token < store.token_count; token += GridWarps()) {
      CopyVectors(Vectors(store.to.hidden, token, path.hidden),
                  Vectors(store.hidden, token, path.hidden), vectors);
    }
  }
  if (store.route_weights == nullptr || store.route_weights == store.to.route_weights) return;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const int64_t count = int64_t{store.token_count} * path.geometry.topk;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    store.to.route_weights[i] = store.route_weights[i];
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_SOURCE_KERNEL_CUH_
