// NVML, the driver's management library, opened at run time where there is a driver: what it says
// of the machine without creating a CUDA context.
#ifndef PERIGEE_KERNELS_DEVICE_NVML_LIBRARY_H_
#define PERIGEE_KERNELS_DEVICE_NVML_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"

namespace perigee {

struct NvmlFunctions;

struct NvmlDevice {
  std::string name;
  std::string uuid;  // "GPU-..."
  uint64_t total_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t free_bytes = 0;
  int nvlinks = 0;                                   // that are up
  absl::optional<bool> persistence = absl::nullopt;  // none: NVML does not tell
  // What each NVLink carries one way; 0: there is none, or NVML does not tell.
  int nvlink_megabytes_per_second = 0;
};

// Thread-safe.
class NvmlLibrary {
 public:
  // Opens libnvidia-ml.so.1, or what `name` says instead, and starts it. NOT_FOUND without a
  // driver; FAILED_PRECONDITION, with NVML's words, where it does not start.
  static absl::StatusOr<std::unique_ptr<NvmlLibrary>> Open(
      const std::string& name = "libnvidia-ml.so.1");
  ~NvmlLibrary();
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;

  absl::StatusOr<std::string> DriverVersion() const;  // "580.159.03"
  // Every device of the machine in NVML's order (of the PCI bus). CUDA's numbers may differ, and
  // CUDA_VISIBLE_DEVICES means nothing here: match by uuid.
  absl::StatusOr<std::vector<NvmlDevice>> Devices() const;

 private:
  explicit NvmlLibrary(std::unique_ptr<NvmlFunctions> functions);

  const std::unique_ptr<NvmlFunctions> functions_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_NVML_LIBRARY_H_
