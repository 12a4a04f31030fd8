#include "client/lib/shared_copy.h"

#include <algorithm>

#include "kernels/device/copy.h"

namespace perigee {

absl::Status CopyBytesIn(const absl::optional<SharedDevice>& device, std::byte* to,
                         absl::Span<const std::byte> from) {
  if (device) return CopyToDevice(device->index, to, from);
  std::copy(from.begin(), from.end(), to);
  return absl::OkStatus();
}

absl::Status CopyBytesOut(const absl::optional<SharedDevice>& device, absl::Span<std::byte> to,
                          const std::byte* from) {
  if (device) return CopyFromDevice(device->index, to, from);
  std::copy_n(from, to.size(), to.begin());
  return absl::OkStatus();
}

}  // namespace perigee
