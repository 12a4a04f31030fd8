// Copies between this process and memory that it shares with a worker, wherever that is.
#ifndef PERIGEE_CLIENT_LIB_SHARED_COPY_H_
#define PERIGEE_CLIENT_LIB_SHARED_COPY_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/lib/shared_region.h"

namespace perigee {

// `device` is where the shared memory is, as LocalClient::device says; none: the host's. They wait
// until the bytes are there. Errors: those of the device.
absl::Status CopyBytesIn(const absl::optional<SharedDevice>& device, std::byte* to,
                         absl::Span<const std::byte> from);
absl::Status CopyBytesOut(const absl::optional<SharedDevice>& device, absl::Span<std::byte> to,
                          const std::byte* from);

template <typename T>
absl::Status CopyIn(const absl::optional<SharedDevice>& device, T* to, absl::Span<const T> from) {
  return CopyBytesIn(device, reinterpret_cast<std::byte*>(to),
                     absl::MakeConstSpan(reinterpret_cast<const std::byte*>(from.data()),
                                         from.size() * sizeof(T)));
}
template <typename T>
absl::StatusOr<std::vector<T>> CopyOut(const absl::optional<SharedDevice>& device, const T* from,
                                       size_t count) {
  std::vector<T> to(count);
  absl::Status status = CopyBytesOut(
      device, absl::MakeSpan(reinterpret_cast<std::byte*>(to.data()), count * sizeof(T)),
      reinterpret_cast<const std::byte*>(from));
  if (!status.ok()) return status;
  return to;
}

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_SHARED_COPY_H_
