// What the ranks of a group decide at an entry barrier, from what each has said there. A pure
// function of words that are the same for every rank, so every rank decides the same.
#ifndef PERIGEE_KERNELS_RANK_AGREEMENT_H_
#define PERIGEE_KERNELS_RANK_AGREEMENT_H_

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "kernels/layout/control_page.h"
#include "kernels/layout/operation.h"
#include "kernels/layout/shard_layout.h"

namespace perigee {

// Copied out of shared memory.
struct RankEntry {
  EntryRecord record;
  Statement statement;      // read only where the hashes differ
  PlanningHeader planning;  // read only where the record tells of a bad route
};

// reason: kNone (all ranks go on), kOutOfStep, kDeclined, kDisagreement, kBadRoute or kCancelled,
// in this order of precedence. The other fields as in ErrorRecord.
struct Decision {
  AbortReason reason = AbortReason::kNone;
  int32_t rank = -1;  // that declined, differs, has the bad route, or wants to cancel
  int32_t token = -1;
  int32_t k = -1;
  int64_t expected = 0;
  int64_t seen = 0;
  std::string text;  // names the ranks and what each said
};

// Whether every rank's hash is the same, those that declined left out: then no statement needs to
// be read.
bool SameStatements(absl::Span<const RankEntry> entries);

// entries [R] for the operation of this sequence. Where statements differ, what most ranks say (the
// lowest rank, if as many say one as the other) is held against the first rank that says otherwise.
Decision Decide(uint64_t sequence, absl::Span<const RankEntry> entries);

// For people: "dispatch", "combine", ...; "operation 77" for what is none.
std::string OperationName(uint32_t operation);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_AGREEMENT_H_
