#include "kernels/device/vmm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"
#include "kernels/device/driver_api.h"
#include "kernels/device/driver_table.h"

namespace perigee {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

CUmemAllocationHandleType TypeOf(HandleKind kind) {
  return kind == HandleKind::kPosixFd ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                      : CU_MEM_HANDLE_TYPE_FABRIC;
}

CUmemAllocationProp Properties(int device, HandleKind kind) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = TypeOf(kind);
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

absl::Status SystemError(absl::string_view what) {
  return absl::InternalError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<ExportedDescriptor> SealedMemfd(const CUmemFabricHandle& handle) {
  ExportedDescriptor fd(memfd_create("perigee-fabric-handle", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  if (fd.get() < 0) return SystemError("memfd_create for a fabric handle");
  const ssize_t written = pwrite(fd.get(), &handle, sizeof(handle), 0);
  if (written != static_cast<ssize_t>(sizeof(handle)) ||
      fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return SystemError("writing a fabric handle");
  }
  return fd;
}

absl::StatusOr<CUmemFabricHandle> ReadSealedMemfd(int fd) {
  CUmemFabricHandle handle = {};
  struct stat status = {};
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(fd, &status) != 0 ||
      status.st_size != static_cast<off_t>(sizeof(handle)) ||
      pread(fd, &handle, sizeof(handle), 0) != static_cast<ssize_t>(sizeof(handle))) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor ", fd, " is no sealed memfd with a fabric handle"));
  }
  return handle;
}

// The driver's descriptors are of its device file. What cannot be one does not get as far as the
// driver, and is refused on machines without one just the same.
absl::Status CheckDriverDescriptor(int fd) {
  struct stat status = {};
  if (fstat(fd, &status) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor ", fd, " is no device memory: ", std::strerror(errno)));
  }
  if (!S_ISCHR(status.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor ", fd, " is no device memory: not of a device file"));
  }
  return absl::OkStatus();
}

// The driver's many words for "not a handle of mine" as one.
absl::Status ImportStatus(int error, int descriptor, HandleKind kind) {
  absl::Status status =
      CudaStatus(error, absl::StrCat("importing device memory by its ", HandleKindName(kind)));
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return status;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "descriptor ", descriptor, " is no device memory: ", std::string(status.message())));
  }
}

// Reserved addresses with nothing mapped.
class Reservation {
 public:
  static absl::StatusOr<Reservation> Reserve(const DriverApi& driver, size_t size_bytes) {
    CUdeviceptr address = 0;
    absl::Status status =
        CudaStatus(driver.cuMemAddressReserve(&address, size_bytes, 0, 0, 0),
                   absl::StrCat("reserving ", size_bytes, " bytes of device addresses"));
    if (!status.ok()) return status;
    return Reservation(driver, address, size_bytes);
  }
  Reservation(Reservation&& other) noexcept
      : driver_(other.driver_), address_(other.Release()), size_bytes_(other.size_bytes_) {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  Reservation& operator=(Reservation&&) = delete;
  ~Reservation() {
    if (address_ == 0) return;
    LogCudaError(CudaStatus(driver_.cuMemAddressFree(address_, size_bytes_),
                            "giving back reserved device addresses"));
  }

  CUdeviceptr address() const { return address_; }
  CUdeviceptr Release() { return std::exchange(address_, 0); }

 private:
  Reservation(const DriverApi& driver, CUdeviceptr address, size_t size_bytes)
      : driver_(driver), address_(address), size_bytes_(size_bytes) {}

  const DriverApi& driver_;
  CUdeviceptr address_;
  size_t size_bytes_;
};

absl::Status GiveAccess(const DriverApi& driver, int device, CUdeviceptr address, size_t size_bytes,
                        bool read_only) {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = read_only ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CudaStatus(driver.cuMemSetAccess(address, size_bytes, &access, 1),
                    absl::StrCat("giving device ", device, read_only ? " read" : " full",
                                 " access to ", size_bytes, " mapped bytes"));
}

}  // namespace

absl::StatusOr<size_t> VmmGranularity(int device, HandleKind kind) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  const CUmemAllocationProp properties = Properties(device, kind);
  size_t granularity = 0;
  absl::Status status =
      CudaStatus(scope->driver().cuMemGetAllocationGranularity(&granularity, &properties,
                                                               CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                 absl::StrCat("asking device ", device, " for its unit of shareable memory"));
  if (!status.ok()) return status;
  return granularity;
}

absl::StatusOr<VmmAllocation> VmmAllocation::Create(int device, size_t size_bytes,
                                                    HandleKind kind) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  const CUmemAllocationProp properties = Properties(device, kind);
  CUmemGenericAllocationHandle handle = 0;
  absl::Status status = CudaStatus(scope->driver().cuMemCreate(&handle, size_bytes, &properties, 0),
                                   absl::StrCat("allocating ", size_bytes, " bytes, shareable by ",
                                                HandleKindName(kind), ", on device ", device));
  if (!status.ok()) return status;
  return VmmAllocation(handle);
}

absl::StatusOr<VmmAllocation> VmmAllocation::Import(int device, int descriptor, HandleKind kind) {
  CUmemFabricHandle fabric = {};
  // The interface takes the descriptor itself in place of a pointer.
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void* os_handle = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
  if (kind == HandleKind::kPosixFd) {
    if (absl::Status status = CheckDriverDescriptor(descriptor); !status.ok()) return status;
  } else {
    const absl::StatusOr<CUmemFabricHandle> read = ReadSealedMemfd(descriptor);
    if (!read.ok()) return read.status();
    fabric = *read;
    os_handle = &fabric;
  }
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  CUmemGenericAllocationHandle handle = 0;
  const int error =
      scope->driver().cuMemImportFromShareableHandle(&handle, os_handle, TypeOf(kind));
  if (absl::Status status = ImportStatus(error, descriptor, kind); !status.ok()) return status;
  return VmmAllocation(handle);
}

VmmAllocation::VmmAllocation(VmmAllocation&& other) noexcept
    : handle_(std::exchange(other.handle_, 0)) {}

VmmAllocation::~VmmAllocation() {
  if (handle_ == 0) return;
  LogCudaError(CudaStatus((*GetDriverApi())->cuMemRelease(handle_), "releasing device memory"));
}

absl::StatusOr<ExportedDescriptor> VmmAllocation::Export(HandleKind kind) const {
  const DriverApi& driver = **GetDriverApi();
  int fd = -1;
  CUmemFabricHandle fabric = {};
  void* out = kind == HandleKind::kPosixFd ? static_cast<void*>(&fd) : &fabric;
  absl::Status status =
      CudaStatus(driver.cuMemExportToShareableHandle(out, handle_, TypeOf(kind), 0),
                 absl::StrCat("exporting device memory as ", HandleKindName(kind)));
  if (!status.ok()) return status;
  if (kind == HandleKind::kFabric) return SealedMemfd(fabric);
  ExportedDescriptor descriptor(fd);
  // A child that this process starts must not keep the memory alive.
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return SystemError("FD_CLOEXEC of exported memory");
  return descriptor;
}

absl::StatusOr<VmmMapping> VmmMapping::Map(int device, const VmmAllocation& allocation,
                                           size_t size_bytes, bool read_only) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  const DriverApi& driver = scope->driver();
  absl::StatusOr<Reservation> reservation = Reservation::Reserve(driver, size_bytes);
  if (!reservation.ok()) return reservation.status();
  absl::Status status =
      CudaStatus(driver.cuMemMap(reservation->address(), size_bytes, 0, allocation.handle(), 0),
                 absl::StrCat("mapping ", size_bytes, " bytes of device memory"));
  if (!status.ok()) return status;
  VmmMapping mapping(reservation->Release(), size_bytes);
  status = GiveAccess(driver, device, mapping.address_, size_bytes, read_only);
  if (!status.ok()) return status;
  return mapping;
}

VmmMapping::VmmMapping(VmmMapping&& other) noexcept
    : address_(std::exchange(other.address_, 0)),
      size_bytes_(other.size_bytes_),
      unit_bytes_(other.unit_bytes_) {}

// The driver takes a mapping away as it was made.
absl::Status VmmMapping::Unmap() {
  const DriverApi& driver = **GetDriverApi();
  absl::Status status;
  const size_t unit = std::exchange(unit_bytes_, 0);
  for (size_t at = 0; unit > 0 && at < size_bytes_; at += unit) {
    status.Update(CudaStatus(driver.cuMemUnmap(address_ + at, unit), "unmapping device memory"));
  }
  return status;
}

absl::Status VmmMapping::Replace(int device, const VmmAllocation& blank, size_t unit_bytes) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  const DriverApi& driver = scope->driver();
  if (absl::Status status = Unmap(); !status.ok()) return status;
  for (size_t at = 0; at < size_bytes_; at += unit_bytes) {
    absl::Status status =
        CudaStatus(driver.cuMemMap(address_ + at, unit_bytes, 0, blank.handle(), 0),
                   "mapping blank device memory");
    if (status.ok()) continue;
    for (size_t mapped = 0; mapped < at; mapped += unit_bytes) {
      LogCudaError(CudaStatus(driver.cuMemUnmap(address_ + mapped, unit_bytes),
                              "unmapping blank device memory"));
    }
    return status;
  }
  unit_bytes_ = unit_bytes;
  return GiveAccess(driver, device, address_, size_bytes_, /*read_only=*/false);
}

VmmMapping::~VmmMapping() {
  if (address_ == 0) return;
  LogCudaError(Unmap());
  LogCudaError(CudaStatus((*GetDriverApi())->cuMemAddressFree(address_, size_bytes_),
                          "giving back the addresses of device memory"));
}

}  // namespace perigee
