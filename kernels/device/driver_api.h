// The CUDA driver API, found at run time through the runtime library: nothing links libcuda, which
// a machine without a GPU does not have, so every binary starts everywhere and says what is
// missing.
#ifndef PERIGEE_KERNELS_DEVICE_DRIVER_API_H_
#define PERIGEE_KERNELS_DEVICE_DRIVER_API_H_

#include "absl/status/statusor.h"

namespace perigee {

struct DriverApi;  // kernels/device/driver_table.h, which needs the CUDA headers

// Looks every function up and initialises the driver at the first call; the answer, good or bad,
// stays for the life of the process. Thread-safe; may take a while at the first call.
// FAILED_PRECONDITION without a driver, with one too old, or in a binary built without CUDA;
// UNIMPLEMENTED, naming the function, where the driver lacks one.
absl::StatusOr<const DriverApi*> GetDriverApi();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_DRIVER_API_H_
