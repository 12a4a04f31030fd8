#include "kernels/backend_registry.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/device/device_info.h"
#include "kernels/host/host_backend.h"

namespace perigee {
namespace {

constexpr const char* kMemoryHandles[] = {"auto", "fd", "fabric"};

// Before any device is looked for: wrong use is told as such on every machine.
absl::Status CheckChoice(const BackendChoice& choice) {
  if (choice.device < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("CUDA device is ", choice.device, ", expected 0 or more"));
  }
  if (choice.sms < 0 || choice.sms_per_buffer < 0) {
    return absl::InvalidArgumentError(absl::StrCat("SMs of the worker is ", choice.sms,
                                                   ", of a buffer ", choice.sms_per_buffer,
                                                   ", expected 0 or more"));
  }
  if (std::find(std::begin(kMemoryHandles), std::end(kMemoryHandles), choice.memory_handle) ==
      std::end(kMemoryHandles)) {
    return absl::InvalidArgumentError(absl::StrCat("memory handle is \"", choice.memory_handle,
                                                   "\", expected one of ",
                                                   absl::StrJoin(kMemoryHandles, ", ")));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Backend>> CreateCuda(const BackendChoice& choice) {
  if (absl::Status status = CheckChoice(choice); !status.ok()) return status;
  // Here and not left to the backend, so that a binary built without CUDA says the same.
  const CudaDevices devices = QueryCudaDevices();
  if (devices.devices.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("backend cuda: ", DescribeCudaDevices(devices)));
  }
  const auto index = static_cast<size_t>(choice.device);
  if (index < devices.devices.size() && choice.sms > devices.devices[index].multiprocessors) {
    return absl::InvalidArgumentError(absl::StrCat("SMs of the worker is ", choice.sms,
                                                   ", the device has ",
                                                   devices.devices[index].multiprocessors));
  }
  CudaBackendOptions options;
  options.device = choice.device;
  options.memory_handle = choice.memory_handle;
  options.sm_budget = choice.sms;
  // A worker with a small part of a device still gets one buffer.
  if (choice.sms > 0) options.sms_per_buffer = std::min(options.sms_per_buffer, choice.sms);
  if (choice.sms_per_buffer > 0) options.sms_per_buffer = choice.sms_per_buffer;
  return CreateCudaBackend(options);
}

}  // namespace

std::vector<std::string> BackendNames() { return {"host", "cuda"}; }

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(absl::string_view name,
                                                       const BackendChoice& choice) {
  if (name == "host") return CreateHostBackend();
  if (name == "cuda") return CreateCuda(choice);
  return absl::InvalidArgumentError(absl::StrCat("backend is \"", name, "\", expected one of ",
                                                 absl::StrJoin(BackendNames(), ", ")));
}

}  // namespace perigee
