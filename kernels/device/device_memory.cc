#include "kernels/device/device_memory.h"

#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/device/copy.h"
#include "kernels/device/memory_use.h"

namespace perigee {
namespace {

// size_bytes rounded up to whole units of the device.
absl::StatusOr<size_t> MappedBytes(int device, size_t size_bytes, HandleKind kind) {
  const absl::StatusOr<size_t> unit = VmmGranularity(device, kind);
  if (!unit.ok()) return unit.status();
  if (size_bytes > std::numeric_limits<size_t>::max() - *unit) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no device has addresses for ", size_bytes, " bytes"));
  }
  return (size_bytes + *unit - 1) / *unit * *unit;
}

// CUDA tells nobody the size of imported memory, but it maps an allocation as a whole or not at all
// (driver 580: "operation not supported" for any other size).
absl::StatusOr<VmmMapping> MapImported(int device, const VmmAllocation& allocation,
                                       size_t mapped_bytes, bool read_only) {
  absl::StatusOr<VmmMapping> mapping = VmmMapping::Map(device, allocation, mapped_bytes, read_only);
  const bool wrong_size =
      absl::IsInvalidArgument(mapping.status()) || absl::IsUnimplemented(mapping.status());
  if (!wrong_size) return mapping;
  return absl::InvalidArgumentError(
      absl::StrCat("imported device memory does not have the expected ", mapped_bytes,
                   " bytes: ", std::string(mapping.status().message())));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceMemory>> DeviceMemory::AllocateShared(int device,
                                                                           size_t size_bytes,
                                                                           HandleKind kind) {
  if (size_bytes == 0) return absl::InvalidArgumentError("cannot allocate 0 bytes");
  const absl::StatusOr<size_t> mapped_bytes = MappedBytes(device, size_bytes, kind);
  if (!mapped_bytes.ok()) return NameFreeMemory(device, size_bytes, mapped_bytes.status());
  const absl::StatusOr<VmmAllocation> allocation =
      VmmAllocation::Create(device, *mapped_bytes, kind);
  if (!allocation.ok()) return NameFreeMemory(device, *mapped_bytes, allocation.status());
  absl::StatusOr<VmmMapping> mapping =
      VmmMapping::Map(device, *allocation, *mapped_bytes, /*read_only=*/false);
  if (!mapping.ok()) return NameFreeMemory(device, *mapped_bytes, mapping.status());
  absl::StatusOr<ExportedDescriptor> descriptor = allocation->Export(kind);
  if (!descriptor.ok()) return descriptor.status();
  std::unique_ptr<DeviceMemory> memory(
      new DeviceMemory(device, size_bytes, *std::move(mapping), *std::move(descriptor)));
  // All of it: what lies behind size_bytes is as visible to peers as the rest.
  absl::Status status = FillDevice(device, memory->data(), 0, *mapped_bytes);
  if (!status.ok()) return status;
  return memory;
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> DeviceMemory::Import(int device, int descriptor,
                                                                   size_t size_bytes,
                                                                   bool read_only,
                                                                   HandleKind kind) {
  // The mapping keeps the memory; the descriptor is closed, since a large group imports more of
  // them than a process may have open.
  const ExportedDescriptor owned(descriptor);
  if (size_bytes == 0) return absl::InvalidArgumentError("cannot import 0 bytes");
  const absl::StatusOr<VmmAllocation> allocation = VmmAllocation::Import(device, owned.get(), kind);
  if (!allocation.ok()) return allocation.status();
  const absl::StatusOr<size_t> mapped_bytes = MappedBytes(device, size_bytes, kind);
  if (!mapped_bytes.ok()) return mapped_bytes.status();
  absl::StatusOr<VmmMapping> mapping = MapImported(device, *allocation, *mapped_bytes, read_only);
  if (!mapping.ok()) return mapping.status();
  return std::unique_ptr<DeviceMemory>(
      new DeviceMemory(device, size_bytes, *std::move(mapping), ExportedDescriptor()));
}

absl::Status DeviceMemory::LetGo() {
  const absl::StatusOr<size_t> unit = VmmGranularity(device_, HandleKind::kPosixFd);
  if (!unit.ok()) return unit.status();
  const absl::StatusOr<VmmAllocation> blank =
      VmmAllocation::Create(device_, *unit, HandleKind::kPosixFd);
  if (!blank.ok()) return NameFreeMemory(device_, *unit, blank.status());
  if (absl::Status status = mapping_.Replace(device_, *blank, *unit); !status.ok()) return status;
  return FillDevice(device_, data(), 0, *unit);
}

DeviceMemory::DeviceMemory(int device, size_t size_bytes, VmmMapping mapping,
                           ExportedDescriptor descriptor)
    : device_(device),
      size_bytes_(size_bytes),
      mapping_(std::move(mapping)),
      descriptor_(std::move(descriptor)) {}

std::byte* DeviceMemory::data() const {
  // The driver gives addresses as integers. NOLINTNEXTLINE(performance-no-int-to-ptr)
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(mapping_.address()));
}

}  // namespace perigee
