#include "tests/device/link_device.h"

#include <fcntl.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device/copy.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"
#include "tests/device/link_launch.h"

namespace perigee {
namespace {

constexpr uint8_t kPoison = 0xA5;

// Runs `launch` with the device current.
template <typename Launch>
absl::Status OnDevice(int device, const char* what, Launch launch) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  return CudaStatus(launch(), absl::StrCat(what, " on device ", device));
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> ImportFor(int device, const DeviceMemory& memory) {
  const int descriptor = fcntl(memory.descriptor(), F_DUPFD_CLOEXEC, 0);
  return DeviceMemory::Import(device, descriptor, memory.size_bytes(), /*read_only=*/false,
                              HandleKind::kPosixFd);
}

// Moves what `made` holds to `to`, if it holds something.
template <typename T>
absl::Status Take(absl::StatusOr<std::unique_ptr<T>> made, std::unique_ptr<T>& to) {
  if (!made.ok()) return made.status();
  to = *std::move(made);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkDevice>> LinkDevice::Create(int device, size_t bytes) {
  std::unique_ptr<LinkDevice> link(new LinkDevice(device, bytes));
  absl::Status status = link->Allocate();
  if (status.ok()) status = link->FillSource();
  if (!status.ok()) return status;
  return link;
}

absl::Status LinkDevice::Allocate() {
  Mapped& own = mapped_[device_];
  const auto allocate = [this] {
    return DeviceMemory::AllocateShared(device_, bytes_, HandleKind::kPosixFd);
  };
  absl::Status status = Take(allocate(), own.source);
  if (status.ok()) status = Take(allocate(), own.target);
  if (status.ok()) {
    status = Take(PrivateDeviceMemory::Allocate(device_, sizeof(uint64_t)), differing_);
  }
  if (status.ok()) status = Take(Stream::Create(device_), stream_);
  if (status.ok()) status = Take(Event::Create(device_, EventTiming::kOn), begin_);
  if (status.ok()) status = Take(Event::Create(device_, EventTiming::kOn), end_);
  return status;
}

absl::Status LinkDevice::FillSource() {
  absl::Status status = OnDevice(device_, "filling the source", [this] {
    return LaunchLinkFill(stream_->get(), View(*this).source->data(), static_cast<int64_t>(bytes_),
                          seed());
  });
  return status.ok() ? stream_->Synchronize() : status;
}

absl::Status LinkDevice::Map(const LinkDevice& peer) {
  const Mapped& theirs = peer.View(peer);
  Mapped& mapped = mapped_[peer.device_];
  absl::Status status = Take(ImportFor(device_, *theirs.source), mapped.source);
  return status.ok() ? Take(ImportFor(device_, *theirs.target), mapped.target) : status;
}

absl::Status LinkDevice::StartCopy(LinkCopy copy, int blocks, const LinkDevice& from,
                                   const LinkDevice& to) {
  absl::Status status = begin_->Record(stream_->get());
  if (!status.ok()) return status;
  const auto launch = copy == LinkCopy::kBulk ? LaunchLinkBulkCopy : LaunchLinkCopy;
  status = OnDevice(device_, "launching a copy", [&] {
    return launch(stream_->get(), blocks, View(to).target->data(), View(from).source->data(),
                  static_cast<int64_t>(bytes_));
  });
  return status.ok() ? end_->Record(stream_->get()) : status;
}

absl::StatusOr<absl::Duration> LinkDevice::AwaitCopy() const {
  absl::Status status = stream_->Synchronize();
  if (!status.ok()) return status;
  return Elapsed(*begin_, *end_);
}

absl::Status LinkDevice::PoisonTarget() {
  return FillDevice(device_, View(*this).target->data(), kPoison, bytes_);
}

absl::Status LinkDevice::CheckTarget(const LinkDevice& from) {
  absl::Status status = FillDevice(device_, differing_->data(), 0, sizeof(uint64_t));
  if (!status.ok()) return status;
  status = OnDevice(device_, "checking the target", [&] {
    return LaunchLinkCompare(stream_->get(), View(*this).target->data(),
                             static_cast<int64_t>(bytes_), from.seed(), differing_->data());
  });
  if (status.ok()) status = stream_->Synchronize();
  if (!status.ok()) return status;
  uint64_t differing = 0;
  status = CopyFromDevice(
      device_, absl::MakeSpan(reinterpret_cast<std::byte*>(&differing), sizeof(differing)),
      differing_->data());
  if (!status.ok() || differing == 0) return status;
  return absl::InternalError(absl::StrCat(differing, " of ", bytes_ / sizeof(uint64_t),
                                          " words from device ", from.device_, " to device ",
                                          device_, " are wrong"));
}

}  // namespace perigee
