// What an operation has to move, and how long a plain copy would take for it.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_BYTES_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_BYTES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/plan/bytes.h"
#include "kernels/plan/plan.h"

namespace perigee {

// One operation of all ranks (kernels/plan/bytes.h).
struct MovedBytes {
  int64_t total_bytes = 0;      // read or written in any rank's memory, by whomever
  int64_t max_local_bytes = 0;  // read and written by a rank in its own memory; the most of a rank
  int64_t max_link_bytes = 0;   // sent, or received if that is more; the most of a rank
  int64_t max_rank_bytes = 0;   // read or written by a rank, in whosever memory; the most of a rank
};
// Which rank moves what crosses a link.
enum class LinkMover { kSender, kReceiver };
struct Movement {
  std::vector<Traffic> ranks;  // [R]
  LinkMover mover = LinkMover::kSender;
};
// Of all movements of an operation, one or more.
MovedBytes Moved(absl::Span<const Movement> movements);
// Of operations that differ, one or more.
MovedBytes MeanOf(absl::Span<const MovedBytes> operations);

// row_bytes: H * 2. Route weights travel with dispatch and are not gathered by combine, which
// includes the local sum.
MovedBytes DispatchBytes(const GroupPlan& plan, int64_t row_bytes);
MovedBytes CombineBytes(const GroupPlan& plan, int64_t row_bytes);
// The same, and a copy of the rows that the plan uses, out of the shard and into it.
MovedBytes StagedDispatchBytes(const GroupPlan& plan, int64_t row_bytes);
MovedBytes StagedCombineBytes(const GroupPlan& plan, int64_t row_bytes);
// One of each.
MovedBytes StepBytes(const GroupPlan& plan, int64_t row_bytes);
// expert_bytes: all matrices of one expert.
MovedBytes PrefetchBytes(const GroupPlan& plan, int64_t expert_bytes);
// A dispatch and a prefetch.
MovedBytes DispatchAndPrefetchBytes(const GroupPlan& plan, int64_t row_bytes, int64_t expert_bytes);
// expert_bytes: all gradients of one expert.
MovedBytes ReduceBytes(const GroupPlan& plan, int64_t expert_bytes);

// Copies of NvS / 2 rows that all ranks made at the same time.
struct CopyTimes {
  int64_t rank_bytes = 0;  // that one rank copied: read once and written once
  double own_us = 0;       // within each rank's shard
  double link_us = 0;      // from each rank to the next; 0: there is only one
  double alone_us = 0;     // as own_us, by rank 0 alone; 0: ranks share no memory
};

// What the ranks share.
enum class RankMemory {
  kOneForAll,   // one device or one host: every byte of every rank goes through the same memory
  kOneForEach,  // a device each, with links between them
};

// GB (10^9 bytes) that go in or out of the memory in a second: of all ranks together where they
// share it, of one rank otherwise. 0 where nothing was measured.
double CopyGbPerSecond(const CopyTimes& copy, RankMemory memory, int32_t ranks);
// GB that go in or out of the memory in a second while one rank copies alone. 0: not measured.
double AloneGbPerSecond(const CopyTimes& copy);
// GB that one rank pushes to the next in a second.
double LinkGbPerSecond(const CopyTimes& copy);

// The time below which the operation cannot come with the copies' rates.
struct Floor {
  double us = 0;
  // What it is bound by: "memory" (shared by all ranks), "rank" (the SMs or threads of the busiest
  // one, where they share a memory), "local" (a rank's own memory) or "link".
  const char* bound = "memory";
};
Floor FloorOf(const MovedBytes& bytes, const CopyTimes& copy, RankMemory memory, int32_t ranks);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_BYTES_H_
