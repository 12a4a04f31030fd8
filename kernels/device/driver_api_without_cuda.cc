#include "kernels/device/cuda_status.h"
#include "kernels/device/driver_api.h"

namespace perigee {

absl::StatusOr<const DriverApi*> GetDriverApi() { return BuiltWithoutCuda(); }

}  // namespace perigee
