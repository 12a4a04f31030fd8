// The one place where a CUDA error code becomes an absl::Status, for both the runtime and the
// driver API: their numbers agree (cudaError_t took over the driver's), so one table serves both.
//
// Everything here is thread-safe, never blocks and works without a device, a driver or the toolkit.
#ifndef PERIGEE_KERNELS_DEVICE_CUDA_STATUS_H_
#define PERIGEE_KERNELS_DEVICE_CUDA_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace perigee {

// OK for 0, otherwise "<doing>: <name> (<code>): <text>" as
//   RESOURCE_EXHAUSTED   device memory, or places at the MPS server, are used up
//   FAILED_PRECONDITION  no device, no driver or one too old, not permitted, device not usable
//   UNIMPLEMENTED        this device or driver cannot do it
//   INVALID_ARGUMENT     an invalid value, device or handle
//   UNAVAILABLE          the MPS server does not answer
//   DATA_LOSS            the CUDA context of this process is lost (IsCudaContextLost)
//   INTERNAL             anything else
// `code` is a cudaError_t or a CUresult; `doing` says what was being done. Also forgets the calling
// thread's last runtime error, so that a later check of a kernel launch does not find it.
absl::Status CudaStatus(int code, absl::string_view doing);

// True for errors after which every further call of this process fails, whatever it does: a fault
// in a kernel, an uncorrectable memory error, the end of the MPS client. Only a new process helps.
bool IsCudaContextLost(int code);

// The same, of a status: kernels/device uses DATA_LOSS for nothing else.
inline bool IsCudaContextLost(const absl::Status& status) { return absl::IsDataLoss(status); }

// What everything that needs CUDA answers in a binary built without it: FAILED_PRECONDITION.
absl::Status BuiltWithoutCuda();

// For destructors, which cannot return it: writes a status that is not OK to stderr.
void LogCudaError(const absl::Status& status);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_CUDA_STATUS_H_
