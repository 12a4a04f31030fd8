// Host memory that the device reads and writes in place: abort words, error records, words on which
// the host and a kernel meet.
#ifndef PERIGEE_KERNELS_DEVICE_PINNED_H_
#define PERIGEE_KERNELS_DEVICE_PINNED_H_

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "absl/status/statusor.h"

namespace perigee {

// Page-locked, mapped on every device of this process. Whoever shares words of it with a kernel
// orders the accesses (system scope on the device, std::atomic_ref on the host).
class PinnedMemory {
 public:
  // Zeroed, page aligned. INVALID_ARGUMENT for 0 bytes or a device that is not there;
  // RESOURCE_EXHAUSTED when the host does not grant it; FAILED_PRECONDITION without a device.
  static absl::StatusOr<std::unique_ptr<PinnedMemory>> Allocate(int device, size_t size_bytes);
  // May wait for work on the device that is under way; end first what uses the memory.
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  std::byte* host() const { return host_; }
  std::byte* device_address() const { return device_address_; }  // the same memory, for kernels
  size_t size_bytes() const { return size_bytes_; }

 private:
  PinnedMemory(int device, std::byte* host, std::byte* device_address, size_t size_bytes)
      : device_(device), host_(host), device_address_(device_address), size_bytes_(size_bytes) {}

  const int device_;
  std::byte* const host_;
  std::byte* const device_address_;
  const size_t size_bytes_;
};

// One T in pinned memory, value-initialised. Errors and lifetime as PinnedMemory.
template <typename T>
class PinnedObject {
  static_assert(std::is_trivially_copyable_v<T>, "host and device share its bytes");
  static_assert(std::is_trivially_destructible_v<T>, "nobody destroys it");

 public:
  static absl::StatusOr<PinnedObject> Create(int device) {
    absl::StatusOr<std::unique_ptr<PinnedMemory>> memory =
        PinnedMemory::Allocate(device, sizeof(T));
    if (!memory.ok()) return memory.status();
    return PinnedObject(*std::move(memory));
  }

  T* host() const { return host_; }
  T* device_address() const { return reinterpret_cast<T*>(memory_->device_address()); }

 private:
  explicit PinnedObject(std::unique_ptr<PinnedMemory> memory)
      : memory_(std::move(memory)), host_(new (memory_->host()) T()) {}

  std::unique_ptr<PinnedMemory> memory_;
  T* host_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_PINNED_H_
