// Blocking copies between host memory and device memory.
//
// Thread-safe; one at a time. They run on a stream of their own and wait for it alone: kernels on
// other streams, even ones that wait for a peer, neither delay a copy nor are waited for. Errors as
// kernels/device/cuda_status.h says.
#ifndef PERIGEE_KERNELS_DEVICE_COPY_H_
#define PERIGEE_KERNELS_DEVICE_COPY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace perigee {

// `device` is the one whose mapping `to` or `from` is an address of.
absl::Status CopyToDevice(int device, std::byte* to, absl::Span<const std::byte> from);
absl::Status CopyFromDevice(int device, absl::Span<std::byte> to, const std::byte* from);
absl::Status FillDevice(int device, std::byte* to, uint8_t value, size_t size_bytes);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_COPY_H_
