// Memory of another process of this host, mapped from a descriptor that it has passed.
#ifndef PERIGEE_PROTO_LOCAL_SHARED_MAPPING_H_
#define PERIGEE_PROTO_LOCAL_SHARED_MAPPING_H_

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/local/file_descriptor.h"

namespace perigee {

// Unmaps what it owns.
class SharedMapping {
 public:
  SharedMapping() = default;
  // Maps all of it, for reading and writing unless `read_only`; the descriptor is closed.
  // INVALID_ARGUMENT, naming what was found: not size_bytes long, or not sealed against shrinking,
  // so that an access could fault later. RESOURCE_EXHAUSTED.
  static absl::StatusOr<SharedMapping> Map(FileDescriptor descriptor, size_t size_bytes,
                                           bool read_only = false);
  ~SharedMapping();
  SharedMapping(SharedMapping&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
  SharedMapping& operator=(SharedMapping&& other) noexcept {
    std::swap(memory_, other.memory_);
    return *this;
  }

  // Ends the sharing: from here on the same addresses hold zeroed memory of this process alone, so
  // that who still has a pointer neither faults nor touches what others use. Nobody accesses it
  // meanwhile. RESOURCE_EXHAUSTED: it may be shared still.
  absl::Status MakePrivate();

  // Page aligned.
  absl::Span<std::byte> memory() const { return memory_; }

 private:
  explicit SharedMapping(absl::Span<std::byte> memory) : memory_(memory) {}
  absl::Span<std::byte> memory_;
};

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_SHARED_MAPPING_H_
