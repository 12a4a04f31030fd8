#include "server/publication/issued_serials.h"

#include "proto/support/defaults.h"

namespace perigee {

void IssuedSerials::Add(const SerialRange& serials, absl::Duration now, absl::Duration life) {
  left_ = serials;
  low_ = serials.count / kTokenRefillDivisor;
  // The worker counts from when it took the grant, which is later.
  usable_until_ = now + life - life / kTokenRefillDivisor;
}

absl::optional<SerialRange> IssuedSerials::Take(uint64_t count, absl::Duration now) {
  if (left_.count < count || now >= usable_until_) return absl::nullopt;
  const SerialRange taken{left_.first, count};
  left_.first += count;
  left_.count -= count;
  issued_ += count;
  return taken;
}

bool IssuedSerials::low(absl::Duration now) const {
  return left_.count <= low_ || now >= usable_until_;
}

}  // namespace perigee
