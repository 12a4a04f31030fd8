// Measured costs of the paths by which rows get to their experts, kept in a file: what a selector
// (path_selector.h) chooses by.
//
// The file is text: a line of JSON that says what it is, then a line of JSON for each cell. Who
// writes it replaces it whole, so a reader finds the old one or the new one. Cells are added to a
// file by path_table_update.h.
#ifndef PERIGEE_CLIENT_LIB_PATH_TABLE_H_
#define PERIGEE_CLIENT_LIB_PATH_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace perigee {

// Of what is written. Version 1 is read, too; its cells do not say token padding, slots and rings.
inline constexpr int kPathTableVersion = 2;

// What costs were measured on; they hold nowhere else.
struct PathMachine {
  std::string device;   // of rank 0, in words
  int32_t devices = 1;  // that the ranks have among them
  std::string backend;
  std::string transport = "nvlink";
  int32_t sms = 0;  // of the buffer; 0: the default
  int32_t local_sms = 0;

  friend bool operator==(const PathMachine&, const PathMachine&) = default;
};
std::string Describe(const PathMachine& machine);

// Of what a cell of version 1 does not say. Nobody knows what it was, so such a cell speaks for no
// buffer: it is kept, and measured again.
inline constexpr int32_t kNotRecorded = -1;

// All of a buffer that what paths take depends on.
struct PathShape {
  int32_t tokens = 0;                    // S
  int32_t hidden = 0;                    // H
  int32_t topk = 0;                      // K
  int32_t experts = 0;                   // E
  int32_t ranks = 0;                     // R
  int32_t token_padding = kNotRecorded;  // P
  int32_t slots = kNotRecorded;          // B
  int32_t ring_slots = kNotRecorded;     // depth of its ring of dispatch outputs; 0: it has none

  // All three of the last, or none.
  bool recorded() const { return token_padding != kNotRecorded; }
  // What a cell of version 1 says of it.
  PathShape AsNotRecorded() const { return {tokens, hidden, topk, experts, ranks}; }

  friend bool operator==(const PathShape&, const PathShape&) = default;
};
std::string Describe(const PathShape& shape);

// Microseconds from rows or their producer to rows that lie by a plan; none: not measured.
struct PathCosts {
  absl::optional<double> dispatch_us;           // ordinary, of rows that are there
  absl::optional<double> pull_us;               // of the same rows
  absl::optional<double> produce_dispatch_us;   // ordinary, with their producer
  absl::optional<double> direct_us;             // with the same producer
  absl::optional<double> direct_overlapped_us;  // likewise

  friend bool operator==(const PathCosts&, const PathCosts&) = default;
};

// One machine, one shape, and routes that are unevenly spread in one way.
struct PathCell {
  PathMachine machine;
  PathShape shape;
  std::string routes;  // what was routed, in words: its name within machine and shape
  // Routes to the experts of the most loaded rank over the mean of ranks, 1 to R.
  double home_imbalance = 1;
  PathCosts costs;

  bool SameCellAs(const PathCell& other) const {
    return machine == other.machine && shape == other.shape && routes == other.routes;
  }
};

class PathTable {
 public:
  // INVALID_ARGUMENT, naming the line, what it has and what was expected there.
  static absl::StatusOr<PathTable> Parse(absl::string_view text);
  // NOT_FOUND: there is no such file. Others name the file, too.
  static absl::StatusOr<PathTable> Read(const std::string& path);

  // Adds a cell; of one that is there already, replaces what the new one has measured.
  void Put(const PathCell& cell);
  const std::vector<PathCell>& cells() const { return cells_; }

  std::string Text() const;
  // By way of a file beside it.
  absl::Status Write(const std::string& path) const;

 private:
  std::vector<PathCell> cells_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_PATH_TABLE_H_
