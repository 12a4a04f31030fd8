#include "kernels/device/cuda_status.h"

#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

absl::StatusCode CodeOf(int code) {
  if (IsCudaContextLost(code)) return absl::StatusCode::kDataLoss;
  switch (code) {
    case cudaErrorMemoryAllocation:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorInitializationError:
    case cudaErrorCudartUnloading:
    case cudaErrorStubLibrary:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoDevice:
    case cudaErrorDeviceUninitialized:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorNotPermitted:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
      return absl::StatusCode::kFailedPrecondition;
    case cudaErrorNotSupported:
    case cudaErrorPeerAccessUnsupported:
      return absl::StatusCode::kUnimplemented;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
      return absl::StatusCode::kInvalidArgument;
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsServerNotReady:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

bool IsCudaContextLost(int code) {
  switch (code) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

absl::Status CudaStatus(int code, absl::string_view doing) {
  if (code == cudaSuccess) return absl::OkStatus();
  const auto error = static_cast<cudaError_t>(code);
  std::string text = absl::StrCat(doing, ": ", cudaGetErrorName(error), " (", code,
                                  "): ", cudaGetErrorString(error));
  if (IsCudaContextLost(code)) absl::StrAppend(&text, "; the CUDA context of this process is lost");
  (void)cudaGetLastError();
  return absl::Status(CodeOf(code), text);
}

absl::Status BuiltWithoutCuda() {
  return absl::FailedPreconditionError("this binary was built without CUDA");
}

void LogCudaError(const absl::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "perigee: %s\n", status.ToString().c_str());
}

}  // namespace perigee
