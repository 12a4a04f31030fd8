// Device memory with random bytes that a seed stands for, made and checked on the device.
#ifndef PERIGEE_TESTS_DEVICE_RANDOM_BYTES_H_
#define PERIGEE_TESTS_DEVICE_RANDOM_BYTES_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "kernels/device/stream.h"

namespace perigee {

// Both run on the stream, whose device maps the memory, and wait for it. Sizes are multiples of 16
// bytes. Errors as kernels/device/cuda_status.h says.
absl::Status FillRandom(const Stream& stream, std::byte* to, size_t size_bytes, uint64_t seed);
// INTERNAL, with their number, where words are not those of the seed.
absl::Status CheckRandom(const Stream& stream, const std::byte* data, size_t size_bytes,
                         uint64_t seed);

}  // namespace perigee

#endif  // PERIGEE_TESTS_DEVICE_RANDOM_BYTES_H_
