#include "kernels/device/device_scope.h"

#include <map>
#include <mutex>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/driver_api.h"
#include "kernels/device/driver_table.h"

namespace perigee {
namespace {

// The primary context of each device that was ever entered. Never released: streams and memory that
// outlive a scope need it, and so does the runtime API.
class PrimaryContexts {
 public:
  static PrimaryContexts& Get() {
    static auto& contexts = *new PrimaryContexts;
    return contexts;
  }

  absl::StatusOr<CUcontext> Find(const DriverApi& driver, int device) {
    // Held while the context is made: threads that come meanwhile need it just as much.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = contexts_.find(device); found != contexts_.end()) return found->second;
    CUdevice handle = 0;
    absl::Status status =
        CudaStatus(driver.cuDeviceGet(&handle, device), absl::StrCat("finding device ", device));
    if (!status.ok()) return status;
    CUcontext context = nullptr;
    status = CudaStatus(driver.cuDevicePrimaryCtxRetain(&context, handle),
                        absl::StrCat("creating a context on device ", device));
    if (!status.ok()) return status;
    contexts_.emplace(device, context);
    return context;
  }

 private:
  std::mutex mutex_;
  std::map<int, CUcontext> contexts_;
};

}  // namespace

absl::StatusOr<DeviceScope> DeviceScope::Enter(int device) {
  const absl::StatusOr<const DriverApi*> driver = GetDriverApi();
  if (!driver.ok()) return driver.status();
  const absl::StatusOr<CUcontext> context = PrimaryContexts::Get().Find(**driver, device);
  if (!context.ok()) return context.status();
  absl::Status status = CudaStatus((*driver)->cuCtxPushCurrent(*context),
                                   absl::StrCat("making device ", device, " current"));
  if (!status.ok()) return status;
  return DeviceScope(*driver);
}

DeviceScope::DeviceScope(DeviceScope&& other) noexcept : driver_(other.driver_) {
  other.driver_ = nullptr;
}

DeviceScope::~DeviceScope() {
  if (driver_ == nullptr) return;
  CUcontext context = nullptr;
  LogCudaError(CudaStatus(driver_->cuCtxPopCurrent(&context), "leaving a device"));
}

}  // namespace perigee
