#include "tests/device/link_device.h"

#include <fcntl.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device/copy.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"
#include "tests/device/link_launch.h"
#include "tests/device/random_bytes.h"

namespace perigee {
namespace {

constexpr uint8_t kPoison = 0xA5;

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
  if (status.ok()) {
    status = FillRandom(*link->stream_, link->View(*link).source->data(), bytes, link->seed());
  }
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
  if (status.ok()) status = Take(Stream::Create(device_), stream_);
  if (status.ok()) status = Take(Event::Create(device_, EventTiming::kOn), begin_);
  if (status.ok()) status = Take(Event::Create(device_, EventTiming::kOn), end_);
  return status;
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
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  if (!scope.ok()) return scope.status();
  const auto launch = copy == LinkCopy::kBulk ? LaunchLinkBulkCopy : LaunchLinkCopy;
  const int error = launch(stream_->get(), blocks, View(to).target->data(),
                           View(from).source->data(), static_cast<int64_t>(bytes_));
  status = CudaStatus(error, absl::StrCat("launching a copy on device ", device_));
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
  const absl::Status status =
      CheckRandom(*stream_, View(*this).target->data(), bytes_, from.seed());
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("from device ", from.device_, " to device ",
                                                  device_, ": ", std::string(status.message())));
}

}  // namespace perigee
