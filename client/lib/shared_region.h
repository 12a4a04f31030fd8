// Memory that a worker shares with this process: the host's, or that of a GPU that both use.
#ifndef PERIGEE_CLIENT_LIB_SHARED_REGION_H_
#define PERIGEE_CLIENT_LIB_SHARED_REGION_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "proto/local/file_descriptor.h"
#include "proto/local/shared_mapping.h"

namespace perigee {

// A GPU as this process sees it.
struct SharedDevice {
  int index = 0;     // of CUDA, in this process
  std::string uuid;  // "GPU-..."
};

// The GPU with this UUID. FAILED_PRECONDITION, naming it and those that are here: this process sees
// none such, and cannot work in its memory.
absl::StatusOr<SharedDevice> FindSharedDevice(const std::string& uuid);

class DeviceMemory;

// Unmaps what it owns.
class SharedRegion {
 public:
  SharedRegion();
  // Maps all of it, for reading and writing unless `read_only`; the descriptor is closed. `device`
  // is where the memory is, none: of the host. INVALID_ARGUMENT where the descriptor is no such
  // memory of size_bytes.
  static absl::StatusOr<SharedRegion> Map(FileDescriptor descriptor, size_t size_bytes,
                                          const absl::optional<SharedDevice>& device,
                                          bool read_only = false);
  ~SharedRegion();
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;

  // Ends the sharing: from here on the same addresses hold memory of this process alone, zeroed at
  // first; on a GPU the same little memory shows all over it. Nobody accesses it meanwhile.
  // RESOURCE_EXHAUSTED: it may be shared still.
  absl::Status MakePrivate();

  // An address of the device's, where it is of one.
  std::byte* data() const;

 private:
  SharedMapping host_;
  std::unique_ptr<DeviceMemory> device_;  // null: of the host
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_SHARED_REGION_H_
