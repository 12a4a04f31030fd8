// The control words of one rank in one buffer: the first thing in its shard, visible to every rank.
// Its size does not depend on the geometry, so that even ranks that disagree on the geometry can
// tell each other so.
//
// Plain struct. Every word that one rank writes while another may read it is accessed through
// std::atomic_ref (or its device counterpart); what orders the accesses stands with the barrier
// that does (kernels/host/rank_barrier.h). Peers are trusted code, but their memory may be garbage:
// a reader copies words out before it checks them and never uses one as an index unchecked.
#ifndef PERIGEE_KERNELS_LAYOUT_CONTROL_PAGE_H_
#define PERIGEE_KERNELS_LAYOUT_CONTROL_PAGE_H_

#include <cstdint>

#include "kernels/common/host_device.h"
#include "kernels/common/ids.h"
#include "kernels/layout/operation.h"

namespace perigee {

// Peers that a control page has words for: the limit on R (kernels/plan/validate.h).
inline constexpr int32_t kControlPeers = 128;

// Where a rank stands in its sequence of collective operations. Positions only grow.
PERIGEE_HOST_DEVICE constexpr uint64_t BarrierPosition(uint64_t sequence, Phase phase) {
  return sequence * 4 + static_cast<uint64_t>(phase);
}
PERIGEE_HOST_DEVICE constexpr uint64_t PositionSequence(uint64_t position) { return position / 4; }

// What a rank says about itself at an entry barrier, besides what all must agree on.
inline constexpr uint32_t kEntryCancelWanted = 1u << 0;
inline constexpr uint32_t kEntryDeclined = 1u << 1;
inline constexpr uint32_t kEntryGathersWeights = 1u << 2;  // combine only; must agree
inline constexpr uint32_t kEntryBadRoute = 1u << 3;        // details: PlanningHeader
inline constexpr uint32_t kEntryNoCredit = 1u << 4;        // EntryRecord::slot is still being read

// Sent to every peer before the arrival at an entry barrier.
struct EntryRecord {
  uint64_t sequence = 0;  // of the operation this record is for: a stale record is recognised by it
  uint64_t statement_hash = 0;  // HashStatement
  uint32_t flags = 0;           // kEntry...
  // 1 + the dispatch-output slot that the operation writes; must agree. Unless kEntryNoCredit says
  // otherwise it is this rank's credit: whoever read the slot last has done so. 0: none.
  uint32_t slot = 0;
};
static_assert(sizeof(EntryRecord) == 24);

// One peer's words in a rank's control page, a cache line of their own, written by that peer alone.
struct alignas(64) PeerWords {
  uint64_t arrival = 0;  // BarrierPosition that the peer has reached
  EntryRecord entry[2];  // by sequence parity
  uint64_t reserved = 0;
};
static_assert(sizeof(PeerWords) == 64);

// What all ranks must say alike at an entry barrier.
struct Statement {
  ObjectTag tag;  // buffer, generation, sequence
  OperationDescriptor descriptor;
  friend constexpr bool operator==(const Statement&, const Statement&) = default;
};
static_assert(sizeof(Statement) == 80);

// FNV-1a over the bytes of a statement, which has no padding.
PERIGEE_HOST_DEVICE inline uint64_t HashStatement(const Statement& statement) {
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(&statement);
  uint64_t hash = 14695981039346656037ull;
  for (unsigned i = 0; i < sizeof(statement); ++i) hash = (hash ^ bytes[i]) * 1099511628211ull;
  return hash;
}

// Why two copies by parity are enough: a rank writes its words for sequence n + 2 after it has
// passed the entry barrier of n + 1, at which every rank arrives only when it has done with n.
struct ControlPage {
  PeerWords peers[kControlPeers];
  Statement statement[2];  // the owner's, by sequence parity; peers read it only on disagreement
  uint32_t doorbell = 0;   // futex word: changes when the owner should look at `peers` again
  uint32_t reserved[7] = {};
};
static_assert(sizeof(ControlPage) == kControlPeers * 64 + 192);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_CONTROL_PAGE_H_
