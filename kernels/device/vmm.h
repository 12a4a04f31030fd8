// RAII over CUDA's virtual memory management: physical memory, and a range of addresses that maps
// it. These are the parts of DeviceMemory; take that unless you build something like it.
//
// Handles and addresses are plain integers (CUmemGenericAllocationHandle, CUdeviceptr), so that
// this compiles without the CUDA headers. Objects are movable values of one owner; different
// objects may be used by different threads. Sizes are multiples of VmmGranularity. Errors, where
// nothing else is said, as kernels/device/cuda_status.h has them.
#ifndef PERIGEE_KERNELS_DEVICE_VMM_H_
#define PERIGEE_KERNELS_DEVICE_VMM_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/exported_descriptor.h"
#include "kernels/device/handle_kind.h"

namespace perigee {

// The unit of shareable memory on a device, 2 MiB on those known today.
absl::StatusOr<size_t> VmmGranularity(int device, HandleKind kind);

// A reference to physical memory, of this process or a peer. A mapping holds one of its own, so
// this may go as soon as the memory is mapped and exported.
class VmmAllocation {
 public:
  static absl::StatusOr<VmmAllocation> Create(int device, size_t size_bytes, HandleKind kind);
  // `descriptor` is borrowed. INVALID_ARGUMENT where it is no memory of this kind.
  static absl::StatusOr<VmmAllocation> Import(int device, int descriptor, HandleKind kind);
  VmmAllocation(VmmAllocation&& other) noexcept;
  VmmAllocation(const VmmAllocation&) = delete;
  VmmAllocation& operator=(const VmmAllocation&) = delete;
  VmmAllocation& operator=(VmmAllocation&&) = delete;
  ~VmmAllocation();

  // A descriptor that Import takes, for the kind that it was made with.
  absl::StatusOr<ExportedDescriptor> Export(HandleKind kind) const;
  uint64_t handle() const { return handle_; }

 private:
  explicit VmmAllocation(uint64_t handle) : handle_(handle) {}

  uint64_t handle_;  // 0: none
};

// A mapped range of this process's device addresses. The destructor unmaps and gives the addresses
// back.
class VmmMapping {
 public:
  // `allocation`, which has size_bytes, accessible from `device`. INVALID_ARGUMENT or UNIMPLEMENTED
  // where it has more or less: the driver maps an allocation as a whole.
  static absl::StatusOr<VmmMapping> Map(int device, const VmmAllocation& allocation,
                                        size_t size_bytes, bool read_only);
  // Lets go of the memory mapped. From here on the addresses have `blank`, which has unit_bytes,
  // over and over: whoever still uses them neither faults nor touches what others have. Nobody uses
  // them meanwhile. On failure they may have nothing.
  absl::Status Replace(int device, const VmmAllocation& blank, size_t unit_bytes);
  VmmMapping(VmmMapping&& other) noexcept;
  VmmMapping(const VmmMapping&) = delete;
  VmmMapping& operator=(const VmmMapping&) = delete;
  VmmMapping& operator=(VmmMapping&&) = delete;
  ~VmmMapping();

  uint64_t address() const { return address_; }
  size_t size_bytes() const { return size_bytes_; }

 private:
  VmmMapping(uint64_t address, size_t size_bytes)
      : address_(address), size_bytes_(size_bytes), unit_bytes_(size_bytes) {}
  absl::Status Unmap();

  uint64_t address_;  // 0: none
  size_t size_bytes_;
  size_t unit_bytes_;  // of one mapping; 0: nothing is mapped
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_VMM_H_
