// The serials of one rank that clients are issued: ranges that its worker has taken, used up from
// the first one on. What is left of a range when another follows is not issued any more. Pure.
#ifndef PERIGEE_SERVER_PUBLICATION_ISSUED_SERIALS_H_
#define PERIGEE_SERVER_PUBLICATION_ISSUED_SERIALS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "proto/support/publication_token.h"

namespace perigee {

// Not thread-safe.
class IssuedSerials {
 public:
  // The worker has a range that was sent at `now`, to be good for `life`; it takes the place of the
  // last one.
  void Add(const SerialRange& serials, absl::Duration now, absl::Duration life);
  // `count` serials in a row, never the same twice. Null: another range is needed, because too few
  // are left, or have too little of their life left to be of use to a client.
  absl::optional<SerialRange> Take(uint64_t count, absl::Duration now);
  // Whether another range should be on its way.
  bool low(absl::Duration now) const;

  uint64_t issued() const { return issued_; }

 private:
  SerialRange left_;
  uint64_t low_ = 0;
  absl::Duration usable_until_;
  uint64_t issued_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_PUBLICATION_ISSUED_SERIALS_H_
