#include "kernels/device/event.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<Event>> Event::Create(int device, EventTiming timing) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  // Blocking: a host thread that waits sleeps in place of spinning.
  const unsigned int flags =
      cudaEventBlockingSync | (timing == EventTiming::kOff ? cudaEventDisableTiming : 0u);
  cudaEvent_t event = nullptr;
  absl::Status status = CudaStatus(cudaEventCreateWithFlags(&event, flags),
                                   absl::StrCat("creating an event on device ", device));
  if (!status.ok()) return status;
  return std::unique_ptr<Event>(new Event(device, event));
}

Event::~Event() {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  LogCudaError(scope.ok() ? CudaStatus(cudaEventDestroy(event_), "destroying an event")
                          : scope.status());
}

absl::Status Event::Record(CUstream_st* stream) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  if (!scope.ok()) return scope.status();
  return CudaStatus(cudaEventRecord(event_, stream), "recording an event");
}

absl::Status Event::MakeWait(CUstream_st* stream) const {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  if (!scope.ok()) return scope.status();
  return CudaStatus(cudaStreamWaitEvent(stream, event_, cudaEventWaitDefault),
                    "making a stream wait for an event");
}

absl::StatusOr<bool> Event::Query() const {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  if (!scope.ok()) return scope.status();
  const cudaError_t error = cudaEventQuery(event_);
  absl::Status status = CudaStatus(error, absl::StrCat("work before an event on device ", device_));
  if (error == cudaErrorNotReady) return false;
  if (!status.ok()) return status;
  return true;
}

absl::Status Event::Synchronize() const {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  if (!scope.ok()) return scope.status();
  return CudaStatus(cudaEventSynchronize(event_),
                    absl::StrCat("work before an event on device ", device_));
}

absl::StatusOr<absl::Duration> Elapsed(const Event& from, const Event& to) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(from.device());
  if (!scope.ok()) return scope.status();
  float milliseconds = 0;
  const cudaError_t error = cudaEventElapsedTime(&milliseconds, from.get(), to.get());
  absl::Status status = CudaStatus(error, "reading the time between two events");
  if (error == cudaErrorNotReady) return absl::FailedPreconditionError(status.message());
  if (!status.ok()) return status;
  return absl::Milliseconds(milliseconds);
}

}  // namespace perigee
