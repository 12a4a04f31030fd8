#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"

namespace perigee {

absl::StatusOr<DeviceScope> DeviceScope::Enter(int) { return BuiltWithoutCuda(); }

DeviceScope::DeviceScope(DeviceScope&& other) noexcept : driver_(other.driver_) {}

DeviceScope::~DeviceScope() = default;

}  // namespace perigee
