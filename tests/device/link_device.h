// One device of link_bench: memory that its peers map, its mappings of theirs, and a stream that
// copies run on.
#ifndef PERIGEE_TESTS_DEVICE_LINK_DEVICE_H_
#define PERIGEE_TESTS_DEVICE_LINK_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/device/device_memory.h"
#include "kernels/device/event.h"
#include "kernels/device/stream.h"

namespace perigee {

enum class LinkCopy { kThreads, kBulk };

// Not thread-safe. Errors as kernels/device/cuda_status.h says.
class LinkDevice {
 public:
  // `bytes` of random data, a source, and as many to copy to, a target; bytes is a multiple of 16.
  static absl::StatusOr<std::unique_ptr<LinkDevice>> Create(int device, size_t bytes);
  // Maps a peer's source and target for access from this device.
  absl::Status Map(const LinkDevice& peer);

  int device() const { return device_; }

  // Queues a copy, run by this device, of `from`'s source to `to`'s target: one of them is this
  // device, the other is mapped or the same.
  absl::Status StartCopy(LinkCopy copy, int blocks, const LinkDevice& from, const LinkDevice& to);
  // Waits for the copy; its time on the device.
  absl::StatusOr<absl::Duration> AwaitCopy() const;

  absl::Status PoisonTarget();
  // INTERNAL where this device's target is not the source of `from`, with the number of words.
  absl::Status CheckTarget(const LinkDevice& from);

 private:
  struct Mapped {
    std::unique_ptr<DeviceMemory> source;
    std::unique_ptr<DeviceMemory> target;
  };

  LinkDevice(int device, size_t bytes) : device_(device), bytes_(bytes) {}
  absl::Status Allocate();
  uint64_t seed() const { return static_cast<uint64_t>(device_) + 1; }
  // As this device maps it.
  const Mapped& View(const LinkDevice& of) const { return mapped_.at(of.device_); }

  const int device_;
  const size_t bytes_;
  std::map<int, Mapped> mapped_;  // by device, its own memory included
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> begin_;
  std::unique_ptr<Event> end_;
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_DEVICE_LINK_DEVICE_H_
