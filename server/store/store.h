// What must survive a restart of the coordinator: its term and the counters whose numbers may never
// be given out twice. Group definitions are not kept: after a restart the coordinator knows no
// groups.
#ifndef PERIGEE_SERVER_STORE_STORE_H_
#define PERIGEE_SERVER_STORE_STORE_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace perigee {

enum class Counter { kGeneration, kBufferId };

// Thread-safe.
class Store {
 public:
  virtual ~Store() = default;
  // Number of this start: one more than that of the last.
  virtual uint64_t term() const = 0;
  // The counter's next number, from 1. It is on disk before it is returned, so a crash can burn a
  // number but never give it out again. Blocks for a disk flush. UNAVAILABLE or DATA_LOSS, with the
  // path: it could not be written; the same call may succeed later.
  virtual absl::StatusOr<uint64_t> Take(Counter counter) = 0;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_STORE_STORE_H_
