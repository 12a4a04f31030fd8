// What the kernels of one rank's data path share with each other and with its host thread. Plain
// structs: the host class owns the memory (cuda_data_path.cc), kernels receive views by value.
#ifndef PERIGEE_KERNELS_CUDA_PATH_VIEW_H_
#define PERIGEE_KERNELS_CUDA_PATH_VIEW_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/common/host_device.h"
#include "kernels/common/ids.h"
#include "kernels/layout/control_page.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/operation.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/layout/weights_layout.h"

namespace perigee {

// Whether the kernels queued on a data path's stream still do their work.
enum class PathStop : uint32_t {
  kNone = 0,
  // An operation ended early and its report waits for the host. Kernels of the operations queued
  // behind it move nothing, but each of these takes its part in its entry barrier and declines: the
  // ranks stay at the same sequence, and nobody waits for a rank that will not come.
  kDecline = 1,
  // The ranks are at different places, or this rank was told to stop: nothing can follow, and this
  // rank must not say that it has arrived anywhere.
  kBroken = 2,
};

// In device memory, this rank's alone.
struct PathState {
  uint32_t stop = 0;                // PathStop
  uint32_t bad_route = UINT32_MAX;  // least index s * K + k of an id out of range; UINT32_MAX: none
  int32_t stale_slot = INT32_MAX;   // least slot whose home held other weights; INT32_MAX: none
  uint32_t reserved = 0;
  uint64_t deadline_ns = 0;  // of the operation under way, by the device's global timer
  HomeHeader stale_home;     // what that slot's home held
};
static_assert(sizeof(PathState) == 40);

// Why a kernel ended an operation early; the host makes a status of it (settle.h).
enum class ReportKind : uint32_t {
  kNone = 0,
  kEntries = 1,        // not all ranks said the same at the entry: `entries` holds what they said
  kDeadline = 2,       // `rank` is missing at the barrier, last seen at `seen`
  kOutOfStep = 3,      // `rank` was seen at `seen`, where it cannot be
  kAborted = 4,        // the abort word was raised
  kHistogram = 5,      // what `rank` published cannot be the histogram of `expected` routes
  kLinks = 6,          // the duplicate map is malformed at `row`
  kStaleHome = 7,      // prefetch: the home block of `rank` holds `home`
  kSlotRefused = 8,    // run_experts: `slot` holds `held`, expected `wanted`
  kHomeRefused = 9,    // run_experts: the home block of `rank` holds `home`
  kHomeChanged = 10,   // run_experts: likewise, found after the rows were computed
  kDestinations = 11,  // prepare_source: what `rank` published cannot be its routes' places: `row`
};

// One rank's words at an entry barrier, copied out of shared memory.
struct ReportedEntry {
  EntryRecord record;
  Statement statement;
  PlanningHeader planning;
};
static_assert(sizeof(ReportedEntry) == 120);

struct Report {
  uint32_t kind = 0;  // ReportKind, written last
  uint32_t operation = 0;
  uint64_t sequence = 0;
  uint32_t place = 0;  // OperationMark
  uint32_t phase = 0;
  int32_t rank = -1;
  uint64_t seen = 0;
  int64_t expected = 0;
  int32_t row = -1;
  int32_t primary = -1;
  int32_t ordinal = -1;
  int32_t slot = -1;
  SlotTag held;
  SlotTag wanted;
  HomeHeader home;
  ReportedEntry entries[kControlPeers];
};

// In pinned host memory that the device sees: its abort page.
struct HostPage {
  uint32_t abort = 0;          // host to device: leave, the generation is over
  uint32_t cancel_wanted = 0;  // host to device: say so at the next entry
  uint32_t broken = 0;         // device to host: PathStop::kBroken, nothing can follow
  uint32_t reserved = 0;
  Report report;  // device to host; the host clears it
};

// Of a kernel whose blocks wait for each other (grid_barrier.cuh); zero between launches.
struct GridWords {
  uint32_t arrived = 0;
  uint32_t left = 0;
  uint32_t verdicts[4] = {};
  uint32_t next[4] = {};  // rows that warps have taken (row_tickets.cuh), by RowQueue
  uint32_t next_own = 0;  // likewise, of the kernel that runs beside a dispatch or a combine
  uint32_t reserved = 0;
  uint64_t planned = 0;  // PlannedWord of the last dispatch that has got so far
  // Of the last dispatch that made a plan: its sequence, once no rank has rows of it under way or
  // it goes no further.
  uint64_t sent = 0;
};
// Of a later dispatch it is greater.
PERIGEE_HOST_DEVICE constexpr uint64_t PlannedWord(uint64_t sequence, bool goes_on) {
  return sequence << 1 | (goes_on ? 1 : 0);
}
enum RowQueue : int { kSendQueue = 0, kExpandQueue = 1, kLocalSumQueue = 2, kTokenSumQueue = 3 };

// One rank's data path as its kernels see it.
struct PathView {
  Geometry geometry;
  int32_t hidden = 0;
  int32_t rank = 0;
  int32_t logical_rows = 0;           // NvS
  const ShardView* shards = nullptr;  // [R] in device memory, as mapped by this rank
  PathState* state = nullptr;
  GridWords* grid = nullptr;
  // [S] sequence of the last combine for which a kernel beside it has summed the token's rows on
  // this rank; null where none runs.
  uint64_t* own_sums = nullptr;
  HostPage* page = nullptr;

  PERIGEE_HOST_DEVICE uint32_t row_bytes() const {
    return static_cast<uint32_t>(hidden) * static_cast<uint32_t>(sizeof(BFloat16));
  }
};

// Which operation a kernel belongs to.
struct OperationMark {
  uint64_t sequence = 0;   // of the last collective operation, for those that have none
  uint32_t operation = 0;  // Operation
  uint32_t place = 0;      // among all that were queued, modulo 2^32
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_PATH_VIEW_H_
