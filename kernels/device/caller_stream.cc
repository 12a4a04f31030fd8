#include "kernels/device/caller_stream.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"
#include "kernels/device/driver_table.h"

namespace perigee {
namespace {

absl::Status WaitForAddress(int device, CUstream_st* stream, uint64_t address, uint64_t value) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  return CudaStatus(
      scope->driver().cuStreamWaitValue64(stream, address, value, CU_STREAM_WAIT_VALUE_GEQ),
      "making a stream wait for a word");
}

}  // namespace

absl::Status CopyOnStream(int device, CUstream_st* stream, void* to, const void* from,
                          size_t size_bytes) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  return CudaStatus(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, stream),
                    absl::StrCat("copying ", size_bytes, " bytes on a caller's stream"));
}

absl::StatusOr<bool> IsStreamDone(int device, CUstream_st* stream) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  const cudaError_t error = cudaStreamQuery(stream);
  if (error == cudaErrorNotReady) return false;
  absl::Status status = CudaStatus(error, "work on a caller's stream");
  if (!status.ok()) return status;
  return true;
}

absl::Status WaitForWord(int device, CUstream_st* stream, const uint64_t* word, uint64_t value) {
  return WaitForAddress(device, stream, reinterpret_cast<uint64_t>(word), value);
}

absl::Status WriteWordOnStream(int device, CUstream_st* stream, uint64_t* word, uint64_t value) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  const auto address = reinterpret_cast<uint64_t>(word);
  return CudaStatus(
      scope->driver().cuStreamWriteValue64(stream, address, value, CU_STREAM_WRITE_VALUE_DEFAULT),
      "writing a word on a caller's stream");
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredMemory::Register(int device,
                                                                             std::byte* memory,
                                                                             size_t size_bytes) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device);
  if (!scope.ok()) return scope.status();
  const std::string doing = absl::StrCat("making ", size_bytes, " bytes of host memory visible");
  absl::Status status =
      CudaStatus(cudaHostRegister(memory, size_bytes, cudaHostRegisterMapped), doing);
  if (!status.ok()) return status;
  void* address = nullptr;
  status = CudaStatus(cudaHostGetDevicePointer(&address, memory, 0), doing);
  if (!status.ok()) {
    LogCudaError(CudaStatus(cudaHostUnregister(memory), "unregistering host memory"));
    return status;
  }
  return std::unique_ptr<RegisteredMemory>(
      new RegisteredMemory(device, memory, reinterpret_cast<uint64_t>(address)));
}

RegisteredMemory::~RegisteredMemory() {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(device_);
  LogCudaError(scope.ok() ? CudaStatus(cudaHostUnregister(memory_), "unregistering host memory")
                          : scope.status());
}

uint64_t RegisteredMemory::AddressOf(const uint64_t* word) const {
  return device_address_ + (reinterpret_cast<const std::byte*>(word) - memory_);
}

absl::Status RegisteredMemory::WriteOnStream(CUstream_st* stream, const uint64_t* word,
                                             uint64_t value) const {
  return WriteWordOnStream(device_, stream, reinterpret_cast<uint64_t*>(AddressOf(word)), value);
}

absl::Status RegisteredMemory::WaitOnStream(CUstream_st* stream, const uint64_t* word,
                                            uint64_t value) const {
  return WaitForAddress(device_, stream, AddressOf(word), value);
}

}  // namespace perigee
