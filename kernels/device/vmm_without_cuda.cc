#include "kernels/device/cuda_status.h"
#include "kernels/device/vmm.h"

namespace perigee {

absl::StatusOr<size_t> VmmGranularity(int, HandleKind) { return BuiltWithoutCuda(); }

absl::StatusOr<VmmAllocation> VmmAllocation::Create(int, size_t, HandleKind) {
  return BuiltWithoutCuda();
}

absl::StatusOr<VmmAllocation> VmmAllocation::Import(int, int, HandleKind) {
  return BuiltWithoutCuda();
}

VmmAllocation::VmmAllocation(VmmAllocation&& other) noexcept : handle_(other.handle_) {}

VmmAllocation::~VmmAllocation() = default;

absl::StatusOr<ExportedDescriptor> VmmAllocation::Export(HandleKind) const {
  return BuiltWithoutCuda();
}

absl::StatusOr<VmmMapping> VmmMapping::Map(int, const VmmAllocation&, size_t, bool) {
  return BuiltWithoutCuda();
}

absl::Status VmmMapping::Replace(int, const VmmAllocation&, size_t) { return BuiltWithoutCuda(); }

absl::Status VmmMapping::Unmap() { return BuiltWithoutCuda(); }

VmmMapping::VmmMapping(VmmMapping&& other) noexcept
    : address_(other.address_), size_bytes_(other.size_bytes_), unit_bytes_(other.unit_bytes_) {}

VmmMapping::~VmmMapping() = default;

}  // namespace perigee
