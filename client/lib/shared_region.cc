#include "client/lib/shared_region.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device/device_info.h"
#include "kernels/device/device_memory.h"

namespace perigee {

absl::StatusOr<SharedDevice> FindSharedDevice(const std::string& uuid) {
  const CudaDevices here = QueryCudaDevices();
  std::string seen;
  for (size_t i = 0; i < here.devices.size(); ++i) {
    if (here.devices[i].uuid == uuid) return SharedDevice{static_cast<int>(i), uuid};
    absl::StrAppend(&seen, i == 0 ? "" : ", ", here.devices[i].uuid);
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the worker's memory is on ", uuid, ", which this process does not see; it sees ",
      seen.empty() ? absl::StrCat("no GPU (", here.problem, ")") : seen));
}

SharedRegion::SharedRegion() = default;
SharedRegion::~SharedRegion() = default;
SharedRegion::SharedRegion(SharedRegion&& other) noexcept = default;
SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept = default;

absl::StatusOr<SharedRegion> SharedRegion::Map(FileDescriptor descriptor, size_t size_bytes,
                                               const absl::optional<SharedDevice>& device,
                                               bool read_only) {
  SharedRegion region;
  if (device) {
    absl::StatusOr<std::unique_ptr<DeviceMemory>> memory = DeviceMemory::Import(
        device->index, descriptor.Release(), size_bytes, read_only, HandleKind::kPosixFd);
    if (!memory.ok()) return memory.status();
    region.device_ = *std::move(memory);
  } else {
    absl::StatusOr<SharedMapping> mapping =
        SharedMapping::Map(std::move(descriptor), size_bytes, read_only);
    if (!mapping.ok()) return mapping.status();
    region.host_ = *std::move(mapping);
  }
  return region;
}

absl::Status SharedRegion::MakePrivate() {
  return device_ ? device_->LetGo() : host_.MakePrivate();
}

std::byte* SharedRegion::data() const { return device_ ? device_->data() : host_.memory().data(); }

}  // namespace perigee
