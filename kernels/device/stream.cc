#include "kernels/device/stream.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<Stream>> Stream::Create(int device, StreamPriority priority) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  int least = 0;
  int greatest = 0;
  absl::Status status = CudaStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                                   "asking for the priorities of streams");
  if (!status.ok()) return status;
  cudaStream_t stream = nullptr;
  status =
      CudaStatus(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                              priority == StreamPriority::kHigh ? greatest : least),
                 absl::StrCat("creating a stream on device ", device));
  if (!status.ok()) return status;
  return std::unique_ptr<Stream>(new Stream(device, stream));
}

Stream::~Stream() {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  LogCudaError(scope.ok() ? CudaStatus(cudaStreamDestroy(stream_), "destroying a stream")
                          : scope.status());
}

absl::StatusOr<bool> Stream::Query() const {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  if (!scope.ok()) return scope.status();
  const cudaError_t error = cudaStreamQuery(stream_);
  absl::Status status = CudaStatus(error, absl::StrCat("work on device ", device_));
  if (error == cudaErrorNotReady) return false;
  if (!status.ok()) return status;
  return true;
}

absl::Status Stream::Synchronize() const {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  if (!scope.ok()) return scope.status();
  return CudaStatus(cudaStreamSynchronize(stream_), absl::StrCat("work on device ", device_));
}

}  // namespace perigee
