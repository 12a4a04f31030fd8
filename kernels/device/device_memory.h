// Device memory that processes share, through CUDA's virtual memory management. It is a
// perigee::Memory, so that a backend hands it on as it is; data() is a device address.
// kernels/device/private_device_memory.h has the memory that nobody shares.
//
// Thread-safe. A call may have to create the device's context first, which takes up to a second.
#ifndef PERIGEE_KERNELS_DEVICE_DEVICE_MEMORY_H_
#define PERIGEE_KERNELS_DEVICE_DEVICE_MEMORY_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/device/exported_descriptor.h"
#include "kernels/device/handle_kind.h"
#include "kernels/device/vmm.h"

namespace perigee {

// Memory of one device, mapped into this process: allocated here or by a peer. The physical memory
// lives until the last mapping and the last descriptor of it, in whatever process, are gone.
class DeviceMemory final : public Memory {
 public:
  // Zeroed, mapped read-write on `device`, and exported: descriptor() is owned by the result and
  // can be passed on any number of times. Importers decide themselves whether they map it read
  // only; CUDA cannot make them. Errors:
  //   INVALID_ARGUMENT     0 bytes, or no such device
  //   RESOURCE_EXHAUSTED   too little device memory, naming the bytes needed and free
  //   FAILED_PRECONDITION  no device, no driver, or the machine does not permit this kind of handle
  //   UNIMPLEMENTED        the device knows no such handle
  static absl::StatusOr<std::unique_ptr<DeviceMemory>> AllocateShared(int device, size_t size_bytes,
                                                                      HandleKind kind);
  // Maps what AllocateShared made, here or in another process, for access from `device`, which may
  // be another device than the memory's. Takes ownership of `descriptor`, also on failure;
  // descriptor() of the result is -1. With read_only a store through the mapping is a fault in the
  // kernel that does it, which loses this process's context. INVALID_ARGUMENT where the descriptor
  // is no such memory, or where its mapped_bytes() differ; else as above.
  static absl::StatusOr<std::unique_ptr<DeviceMemory>> Import(int device, int descriptor,
                                                              size_t size_bytes, bool read_only,
                                                              HandleKind kind);
  // Of imported memory: lets go of it. The addresses hold memory of this process from then on,
  // zeroes at first, in which what is written in one place shows in others (vmm.h, Replace).
  // Nothing on the device uses them meanwhile. RESOURCE_EXHAUSTED: nothing has changed.
  absl::Status LetGo();
  // Unmaps and frees, which may wait for work on the device: end the work that uses the memory
  // first, for a kernel that waits for a peer would keep this waiting too.
  ~DeviceMemory() override = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  std::byte* data() const override;
  size_t size_bytes() const override { return size_bytes_; }  // as asked for
  int descriptor() const override { return descriptor_.get(); }
  // size_bytes() rounded up to whole pages of the device (2 MiB): what it takes there.
  size_t mapped_bytes() const { return mapping_.size_bytes(); }
  int device() const { return device_; }

 private:
  DeviceMemory(int device, size_t size_bytes, VmmMapping mapping, ExportedDescriptor descriptor);

  const int device_;
  const size_t size_bytes_;
  VmmMapping mapping_;
  const ExportedDescriptor descriptor_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_DEVICE_MEMORY_H_
