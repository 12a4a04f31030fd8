// Which path rows take to their experts, by measured costs.
//
// Ordinary dispatch is what always works, and what is chosen wherever nothing else is known to be
// faster. Costs hold for the machine and the shape that they were measured for, and for nothing
// near them. How unevenly routes are spread is a number, by which costs are read off:
//
//   between two cells: in proportion, and a path only where it is faster in both of them
//   beyond the last cell on a side, by no more than kNearImbalance: that cell's
//   farther away: ordinary
//
// A path is faster where it takes kLeastSaving less, of what the ordinary path of the same start
// takes (rows that are there, or their producer); of several the one that saves most.
#ifndef PERIGEE_CLIENT_LIB_PATH_SELECTOR_H_
#define PERIGEE_CLIENT_LIB_PATH_SELECTOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/lib/path_table.h"
#include "proto/v1/buffers.pb.h"

namespace perigee {

enum class DispatchPath {
  kOrdinary,
  kDirect,            // the producer writes rows to their places; then all that is not rows
  kDirectOverlapped,  // that beside the producer
  kPull,              // rows stay in their rank's source shard, and are fetched
};
// "ordinary", "direct", "direct_overlapped" or "pull".
const char* PathName(DispatchPath path);

// Parts of the cost of ordinary dispatch.
inline constexpr double kLeastSaving = 0.01;
// Part of a cell's home imbalance.
inline constexpr double kNearImbalance = 0.05;

struct PathQuery {
  PathMachine machine;
  PathShape shape;
  double home_imbalance = 1;  // as of PathCell
  // What the framework's sides can do.
  bool producer_writes_in_place = false;  // by a target
  bool prepares_beside = false;           // a preparation can run beside the producer
  bool consumer_reads_peers = false;      // or rank and mappings allow to fetch rows for it
};

// What decided for a path.
enum class PathBasis {
  kDefault,      // nobody asked for one, or no other is possible
  kAskedFor,     // it was asked for
  kMeasured,     // costs of cells that hold here
  kNotMeasured,  // there are none, so it is the ordinary one
};

struct PathChoice {
  DispatchPath path = DispatchPath::kOrdinary;
  std::string reason;  // in words, for people
  PathBasis basis = PathBasis::kDefault;
  std::string cell = "";  // kMeasured: the cell that counted, or the two, in words
};
// As the coordinator keeps it of a buffer; what is too long for it is cut off.
v1::PathChoice ToWire(const PathChoice& choice);

PathChoice ChoosePath(const PathTable& table, const PathQuery& query);

// Home imbalance of routes [R, S, K], expert ids or -1, of E experts on R ranks: routes to the
// experts of the most loaded rank over the mean of ranks. 1 where there are none. Ids are valid.
double HomeImbalanceOf(absl::Span<const int32_t> topk_experts, int32_t experts, int32_t ranks);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_PATH_SELECTOR_H_
