// What each operation of a plan has to move, rank by rank: the numbers a measured time is divided
// by. Counted is what the operation cannot do without; index arrays, control words and everything
// an implementation adds on top are left out.
#ifndef PERIGEE_KERNELS_PLAN_BYTES_H_
#define PERIGEE_KERNELS_PLAN_BYTES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/plan/plan.h"

namespace perigee {

// Rows and routes of one rank. "sent" and "received" are seen from dispatch; in combine the same
// rows come back the other way.
struct RowCounts {
  int64_t tokens = 0;              // S, the rows that combine writes
  int64_t source_rows = 0;         // own tokens with a route that is not masked
  int64_t routes = 0;              // own unmasked routes
  int64_t routes_sent = 0;         // those to other ranks
  int64_t routes_received = 0;     // other ranks' routes to here
  int64_t primaries_local = 0;     // own primary rows that stay here
  int64_t primaries_sent = 0;      // own primary rows that cross the link
  int64_t primaries_received = 0;  // other ranks' primary rows to here
  int64_t padding_rows = 0;
  int64_t duplicated_primaries = 0;  // primary rows here that have duplicates
  int64_t duplicates = 0;            // duplicate rows here
};

std::vector<RowCounts> CountRows(const GroupPlan& plan);  // [R]

struct ElementCosts {
  int64_t row_bytes = 0;      // H * bytes of an element
  bool route_weights = true;  // fp32, one a route
  int32_t topk = 0;           // K, for the route weights that combine writes
};

// read and written: own memory, by the rank itself. sent and received: over the link, whichever
// side issues the access. What peers store into a rank counts as received there, not as written.
struct Traffic {
  int64_t read_bytes = 0;
  int64_t written_bytes = 0;
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;

  friend constexpr bool operator==(const Traffic&, const Traffic&) = default;
  Traffic& operator+=(const Traffic& other);
};

Traffic Total(absl::Span<const Traffic> ranks);

// Reads each token row once, stores each primary row and every route's weight in its place, writes
// padding rows and their weights, reads each primary that has duplicates once more and writes them.
Traffic DispatchTraffic(const RowCounts& rows, const ElementCosts& costs);
// Reads each primary that has duplicates, and these; writes the primary.
Traffic LocalSumTraffic(const RowCounts& rows, const ElementCosts& costs);
// Fetches each primary row (and each route's weight), writes every token row (and weight).
Traffic CombineTraffic(const RowCounts& rows, const ElementCosts& costs);
// [R] Fetches the weights of every expert in a slot. expert_bytes: all matrices of one expert.
std::vector<Traffic> PrefetchTraffic(const Placement& placement, int64_t expert_bytes);
// [R] Reads and writes the gradients of every own expert that sits in slots once, fetches those of
// each of its slots, and clears the own slots. expert_bytes: all gradients of one expert.
std::vector<Traffic> ReduceTraffic(const Placement& placement, int64_t expert_bytes);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_BYTES_H_
