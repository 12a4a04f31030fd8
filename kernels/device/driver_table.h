// The functions of the CUDA driver API that kernels/device calls. Needs the CUDA headers: only .cc
// files of a cuda_host_library include it. Get the filled table from kernels/device/driver_api.h.
#ifndef PERIGEE_KERNELS_DEVICE_DRIVER_TABLE_H_
#define PERIGEE_KERNELS_DEVICE_DRIVER_TABLE_H_

#include <cuda.h>
#include <cudaTypedefs.h>

// X(function, version of its signature): the version is asked for by number, since a later driver
// may give the plain name another signature.
#define PERIGEE_DRIVER_FUNCTIONS(X)        \
  X(cuInit, 2000)                          \
  X(cuDeviceGet, 2000)                     \
  X(cuDevicePrimaryCtxRetain, 7000)        \
  X(cuCtxPushCurrent, 4000)                \
  X(cuCtxPopCurrent, 4000)                 \
  X(cuMemGetAllocationGranularity, 10020)  \
  X(cuMemCreate, 10020)                    \
  X(cuMemRelease, 10020)                   \
  X(cuMemAddressReserve, 10020)            \
  X(cuMemAddressFree, 10020)               \
  X(cuMemMap, 10020)                       \
  X(cuMemUnmap, 10020)                     \
  X(cuMemSetAccess, 10020)                 \
  X(cuMemExportToShareableHandle, 10020)   \
  X(cuMemImportFromShareableHandle, 10020) \
  X(cuStreamWriteValue64, 11070)           \
  X(cuStreamWaitValue64, 11070)

namespace perigee {

struct DriverApi {
#define PERIGEE_DRIVER_MEMBER(name, version) PFN_##name##_v##version name = nullptr;
  PERIGEE_DRIVER_FUNCTIONS(PERIGEE_DRIVER_MEMBER)
#undef PERIGEE_DRIVER_MEMBER
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_DRIVER_TABLE_H_
