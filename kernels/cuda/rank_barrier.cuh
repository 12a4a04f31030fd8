// The barrier of a group on the device: one block of each rank takes part, thread t speaks to and
// waits for rank t. Nothing else on the device waits for a peer.
//
// Memory order: what this rank's earlier kernels stored, and what other blocks of this kernel
// stored before a grid barrier, is released by the arrival (st.release.sys); what peers stored
// before theirs is acquired by the wait (ld.acquire.sys), for this block, and for others after a
// grid barrier.
#ifndef PERIGEE_KERNELS_CUDA_RANK_BARRIER_CUH_
#define PERIGEE_KERNELS_CUDA_RANK_BARRIER_CUH_

#include <cstdint>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/path_view.h"
#include "kernels/cuda/rank_barrier_arguments.h"

namespace perigee {

inline constexpr int kBarrierThreads = kControlPeers;
// Between looks at the abort word, which lies in host memory: each costs a trip over PCIe.
inline constexpr uint64_t kAbortPollNs = 2000;

// What a thread that speaks to a rank needs at a barrier: read well before it is used, each of
// these loads is a trip to memory, the words of the host page one over PCIe.
struct BarrierSite {
  ControlPage* own = nullptr;   // this rank's
  ControlPage* peer = nullptr;  // of the rank that this thread speaks to, as mapped here
  uint32_t abort = 0;
  uint32_t cancel_wanted = 0;
};
// Nothing for the threads that speak to nobody.
__device__ inline BarrierSite LoadBarrierSite(const PathView& path) {
  if (threadIdx.x >= path.geometry.ranks) return {};
  return {path.shards[path.rank].control, path.shards[threadIdx.x].control,
          LoadRelaxed(&path.page->abort), LoadRelaxed(&path.page->cancel_wanted)};
}

struct WaitVerdict {
  ReportKind kind = ReportKind::kNone;
  uint64_t seen = 0;
};

// The farthest that a rank can be while another waits for `position`: at the entry of the next
// operation, which nobody passes without the waiter.
__device__ inline uint64_t FarthestPosition(uint64_t position) {
  return BarrierPosition(PositionSequence(position) + 1, Phase::kEntry);
}

// Bounded by the deadline. `leave` is shared by the block: one thread that has seen why nobody
// needs to wait any more releases the others.
__device__ inline WaitVerdict WaitFor(const PathView& path, const uint64_t* word, uint64_t position,
                                      uint64_t deadline_ns, volatile uint32_t* leave) {
  uint64_t next_poll = 0;
  while (true) {
    const uint64_t seen = LoadAcquire(word);
    if (seen > FarthestPosition(position)) return {ReportKind::kOutOfStep, seen};
    if (seen >= position) return {ReportKind::kNone, seen};
    if (*leave != 0) return {ReportKind::kNone, seen};
    const uint64_t now = DeviceTime();
    if (now < next_poll) continue;
    next_poll = now + kAbortPollNs;
    if (LoadRelaxed(&path.page->abort) != 0) return {ReportKind::kAborted, seen};
    if (now >= deadline_ns) return {ReportKind::kDeadline, seen};
  }
}

// All threads call it. Waits until every rank is at `position`; true where all are, else the path
// has been stopped and the report raised.
__device__ inline bool WaitForAll(const PathView& path, const BarrierSite& site,
                                  const OperationMark& mark, Phase phase, uint64_t deadline_ns) {
  __shared__ uint32_t leave;
  __shared__ uint32_t worst;  // ReportKind << 16 | 0xffff - rank: the gravest of the lowest rank
  if (threadIdx.x == 0) leave = worst = 0;
  __syncthreads();
  const auto peer = static_cast<int32_t>(threadIdx.x);
  const uint64_t position = BarrierPosition(mark.sequence, phase);
  WaitVerdict verdict;
  if (peer < path.geometry.ranks) {
    verdict = WaitFor(path, &site.own->peers[peer].arrival, position, deadline_ns, &leave);
  }
  if (verdict.kind != ReportKind::kNone) {
    // A missing rank does not end the wait for the others: at the deadline the lowest is named.
    if (verdict.kind != ReportKind::kDeadline) *static_cast<volatile uint32_t*>(&leave) = 1;
    atomicMax(&worst, static_cast<uint32_t>(verdict.kind) << 16 | (0xffffu - peer));
  }
  __syncthreads();
  if (worst == 0) return true;
  const bool speaker = static_cast<int32_t>(0xffffu - (worst & 0xffffu)) == peer;
  if (speaker && BreakPath(path)) {
    Report& report = path.page->report;
    report.phase = static_cast<uint32_t>(phase);
    report.rank = peer;
    report.seen = verdict.seen;
    Publish(report, mark, verdict.kind);
  }
  return false;
}

// Says what this rank has to say in every rank's page, then arrives there.
__device__ inline void Announce(const PathView& path, const BarrierSite& site,
                                const OperationMark& mark, const EntryArguments& entry,
                                uint32_t flags) {
  const int parity = static_cast<int>(mark.sequence & 1);
  const auto peer = static_cast<int32_t>(threadIdx.x);
  if (peer == 0) StoreWords(&site.own->statement[parity], entry.statement);
  __syncthreads();  // the statement before the arrival of every thread
  if (peer >= path.geometry.ranks) return;
  PeerWords& words = site.peer->peers[path.rank];
  EntryRecord record;
  record.sequence = mark.sequence;
  record.statement_hash = entry.statement_hash;
  record.flags = flags;
  record.slot = entry.slot;
  StoreWords(&words.entry[parity], record);
  StoreRelease(&words.arrival, BarrierPosition(mark.sequence, Phase::kEntry));
}

// After all have arrived: false where they do not all say what this rank says and nothing else. The
// words are the same for every rank, so every rank leaves; the host works out why.
__device__ inline bool AllSayTheSame(const PathView& path, const BarrierSite& site,
                                     const OperationMark& mark, const EntryArguments& entry) {
  const int parity = static_cast<int>(mark.sequence & 1);
  const auto peer = static_cast<int32_t>(threadIdx.x);
  const bool is_rank = peer < path.geometry.ranks;
  EntryRecord record;
  if (is_rank) record = LoadWords(&site.own->peers[peer].entry[parity]);
  const bool differs = is_rank && (record.sequence != mark.sequence ||
                                   record.statement_hash != entry.statement_hash ||
                                   record.flags != entry.flags || record.slot != entry.slot);
  if (__syncthreads_or(differs ? 1 : 0) == 0) return true;
  __shared__ uint32_t claimed;
  if (peer == 0) claimed = ClaimReport(path, PathStop::kDecline) ? 1 : 0;
  __syncthreads();
  if (claimed == 0) return false;
  Report& report = path.page->report;
  if (is_rank) {
    ReportedEntry& told = report.entries[peer];
    told.record = record;
    told.statement = LoadWords(&site.peer->statement[parity]);
    // Its place depends on no geometry, so it can be read even where geometries differ.
    told.planning = LoadWords(&path.shards[peer].planning[parity]);
  }
  __syncthreads();
  if (peer == 0) {
    report.phase = static_cast<uint32_t>(Phase::kEntry);
    Publish(report, mark, ReportKind::kEntries);
  }
  return false;
}

// What this rank adds to its flags on the device.
__device__ inline uint32_t EntryFlags(const PathView& path, const EntryArguments& entry,
                                      const BarrierSite& site) {
  uint32_t flags = entry.flags;
  if (site.cancel_wanted != 0) flags |= kEntryCancelWanted;
  if (path.state->stop == static_cast<uint32_t>(PathStop::kDecline)) return flags | kEntryDeclined;
  const uint32_t operation = entry.statement.descriptor.operation;
  const bool has_routes = operation == static_cast<uint32_t>(Operation::kDispatch) ||
                          operation == static_cast<uint32_t>(Operation::kPrepareDispatch) ||
                          operation == static_cast<uint32_t>(Operation::kPrepareSource);
  if (has_routes && path.state->bad_route != UINT32_MAX) flags |= kEntryBadRoute;
  return flags;
}

// Whether what read the operation's slot last has ended, which is waited for until then. Orders:
// its reads, on whatever stream, before the arrival of this rank, and so before what peers store.
__device__ inline bool AwaitCredit(const PathView& path, const EntryArguments& entry,
                                   uint64_t until_ns) {
  while (LoadAcquire(entry.credit) == 0) {
    if (LoadRelaxed(&path.page->abort) != 0 || DeviceTime() >= until_ns) return false;
  }
  return true;
}

// All threads of one block of at least kBarrierThreads. Tells every rank what this one says about
// the operation and arrives; with `wait`, waits for all. True where the operation goes on here,
// else the path has been stopped, or had been.
__device__ inline bool Enter(const PathView& path, const OperationMark& mark,
                             const EntryArguments& entry, const BarrierSite& site,
                             bool wait = true) {
  if (path.state->stop == static_cast<uint32_t>(PathStop::kBroken)) return false;
  __shared__ uint32_t flags;
  __shared__ uint64_t deadline_ns;
  if (threadIdx.x == 0) {
    flags = EntryFlags(path, entry, site);
    deadline_ns = DeviceTime() + entry.timeout_ns;
    path.state->deadline_ns = deadline_ns;
    const bool waits = wait && entry.slot != 0 && (flags & kEntryDeclined) == 0;
    if (waits && !AwaitCredit(path, entry, deadline_ns - entry.timeout_ns / 2)) {
      flags |= kEntryNoCredit;
    }
  }
  __syncthreads();
  Announce(path, site, mark, entry, flags);
  if (!wait || !WaitForAll(path, site, mark, Phase::kEntry, deadline_ns)) return false;
  // A rank that declines has told the others; what they make of it is not its business.
  const bool declines = (entry.flags & kEntryDeclined) != 0;
  const bool goes_on = path.state->stop == 0 && !declines && AllSayTheSame(path, site, mark, entry);
  if (goes_on && entry.slot != 0 && threadIdx.x == 0) StoreRelaxed(entry.credit, 0);
  return goes_on;
}

// All threads of the same block: this rank has done its part. True where all ranks have done
// theirs.
__device__ inline bool Exit(const PathView& path, const OperationMark& mark,
                            const BarrierSite& site) {
  // An aborted rank does not say that it is done.
  if (site.abort == 0 && threadIdx.x < path.geometry.ranks) {
    StoreRelease(&site.peer->peers[path.rank].arrival,
                 BarrierPosition(mark.sequence, Phase::kExit));
  }
  return WaitForAll(path, site, mark, Phase::kExit, path.state->deadline_ns);
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_RANK_BARRIER_CUH_
