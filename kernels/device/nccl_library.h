// NCCL, opened at run time where it is installed: which version it is, and whether it works here.
#ifndef PERIGEE_KERNELS_DEVICE_NCCL_LIBRARY_H_
#define PERIGEE_KERNELS_DEVICE_NCCL_LIBRARY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace perigee {

struct NcclFunctions;

// NVLink multicast stays off: NCCL_NVLS_ENABLE=0 in this process's environment, unless it is set.
// NCCL reads it once, when it is first used. Call it before other threads read the environment.
void TurnNvlinkMulticastOff();

// Thread-safe.
class NcclLibrary {
 public:
  // Opens libnccl.so.2, or what `name` says instead (kernels/device/shared_library.h has the
  // folders), with NVLink multicast turned off.
  // NOT_FOUND where it is not installed; UNIMPLEMENTED where a function is missing.
  static absl::StatusOr<std::unique_ptr<NcclLibrary>> Open(
      const std::string& name = "libnccl.so.2");
  ~NcclLibrary();
  NcclLibrary(const NcclLibrary&) = delete;
  NcclLibrary& operator=(const NcclLibrary&) = delete;

  int version() const { return version_; }  // 10000 * major + 100 * minor + patch
  std::string version_text() const;         // "2.28.9"
  const std::string& path() const { return path_; }
  // For NcclCommunicator; they live as long as this.
  const NcclFunctions& functions() const { return *functions_; }

  // Makes a communicator of one rank on `device`, sums a few numbers over it and compares. Takes
  // seconds; NCCL gives no bound. Errors as kernels/device/cuda_status.h says; INTERNAL with NCCL's
  // words, or naming what came out, where the sum is wrong.
  absl::Status SmokeCheck(int device) const;

 private:
  NcclLibrary(std::unique_ptr<NcclFunctions> functions, std::string path, int version);

  const std::unique_ptr<NcclFunctions> functions_;
  const std::string path_;
  const int version_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_NCCL_LIBRARY_H_
