#include "kernels/device/peer_access.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"

namespace perigee {

absl::StatusOr<bool> CanAccessPeer(int device, int peer) {
  int can = 0;
  const absl::Status status =
      CudaStatus(cudaDeviceCanAccessPeer(&can, device, peer),
                 absl::StrCat("asking whether device ", device, " reaches device ", peer));
  if (!status.ok()) return status;
  return can != 0;
}

}  // namespace perigee
