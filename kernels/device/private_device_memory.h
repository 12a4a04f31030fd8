// Device memory of this process alone. It is a perigee::Memory; data() is a device address.
#ifndef PERIGEE_KERNELS_DEVICE_PRIVATE_DEVICE_MEMORY_H_
#define PERIGEE_KERNELS_DEVICE_PRIVATE_DEVICE_MEMORY_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace perigee {

// Thread-safe.
class PrivateDeviceMemory final : public Memory {
 public:
  // Zeroed; aligned to 256 bytes. INVALID_ARGUMENT for 0 bytes or a device that is not there;
  // RESOURCE_EXHAUSTED, naming the bytes needed and free; FAILED_PRECONDITION without a device.
  static absl::StatusOr<std::unique_ptr<PrivateDeviceMemory>> Allocate(int device,
                                                                       size_t size_bytes);
  // Waits for all work of this process on the device: end what waits for a peer first.
  ~PrivateDeviceMemory() override;
  PrivateDeviceMemory(const PrivateDeviceMemory&) = delete;
  PrivateDeviceMemory& operator=(const PrivateDeviceMemory&) = delete;

  std::byte* data() const override { return data_; }
  size_t size_bytes() const override { return size_bytes_; }
  int descriptor() const override { return -1; }
  int device() const { return device_; }

 private:
  PrivateDeviceMemory(int device, std::byte* data, size_t size_bytes)
      : device_(device), data_(data), size_bytes_(size_bytes) {}

  const int device_;
  std::byte* const data_;
  const size_t size_bytes_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_PRIVATE_DEVICE_MEMORY_H_
