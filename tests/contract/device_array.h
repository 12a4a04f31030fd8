// An array in a backend's memory for tests: poisoned when made, with guard bands on both sides that
// are checked when it ends.
#ifndef PERIGEE_TESTS_CONTRACT_DEVICE_ARRAY_H_
#define PERIGEE_TESTS_CONTRACT_DEVICE_ARRAY_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace perigee {

inline constexpr std::byte kPoison{0xA5};
inline constexpr std::byte kGuard{0xC3};

template <typename T>
class DeviceArray {
 public:
  DeviceArray(Backend& backend, size_t size) : backend_(&backend), size_(size) {
    auto memory = backend.AllocatePrivate(total_bytes());
    EXPECT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
    std::vector<std::byte> bytes(total_bytes(), kGuard);
    std::fill_n(bytes.begin() + kGuardBytes, size_ * sizeof(T), kPoison);
    EXPECT_TRUE(backend.CopyIn(memory_->data(), bytes).ok());
  }
  DeviceArray(Backend& backend, const std::vector<T>& values)
      : DeviceArray(backend, values.size()) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    EXPECT_TRUE(backend.CopyIn(begin(), absl::MakeConstSpan(bytes, size_ * sizeof(T))).ok());
  }
  DeviceArray(DeviceArray&&) noexcept = default;
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() {
    if (memory_ == nullptr) return;
    std::vector<std::byte> bytes(total_bytes());
    EXPECT_TRUE(backend_->CopyOut(absl::MakeSpan(bytes), memory_->data()).ok());
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    EXPECT_TRUE(std::all_of(bytes.begin(), bytes.begin() + kGuardBytes, is_guard))
        << "something was written before the array";
    EXPECT_TRUE(std::all_of(bytes.end() - kGuardBytes, bytes.end(), is_guard))
        << "something was written past the array";
  }

  T* data() const { return reinterpret_cast<T*>(begin()); }
  std::vector<T> Get() const {
    std::vector<T> values(size_);
    auto* bytes = reinterpret_cast<std::byte*>(values.data());
    EXPECT_TRUE(backend_->CopyOut(absl::MakeSpan(bytes, size_ * sizeof(T)), begin()).ok());
    return values;
  }

 private:
  static constexpr size_t kGuardBytes = 256;
  size_t total_bytes() const { return size_ * sizeof(T) + 2 * kGuardBytes; }
  std::byte* begin() const { return memory_->data() + kGuardBytes; }

  Backend* backend_;
  size_t size_;
  std::unique_ptr<Memory> memory_;
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_DEVICE_ARRAY_H_
