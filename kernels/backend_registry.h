// Backends by name.
#ifndef PERIGEE_KERNELS_BACKEND_REGISTRY_H_
#define PERIGEE_KERNELS_BACKEND_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"

namespace perigee {

// What a backend may use of this machine. The host backend has none of these.
struct BackendChoice {
  int device = 0;   // index of the CUDA device
  int32_t sms = 0;  // SMs that all buffers of this worker may take; 0: the whole device's
  int32_t sms_per_buffer = 0;          // 0: the backend's default, or `sms` where that is less
  std::string memory_handle = "auto";  // auto | fd | fabric
};

// Names that CreateBackend knows.
std::vector<std::string> BackendNames();

// INVALID_ARGUMENT: an unknown name (the known ones are listed), or a choice that cannot be.
// FAILED_PRECONDITION: "cuda" where there is no device, saying what is there instead. Otherwise
// what the backend's own making says.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(absl::string_view name,
                                                       const BackendChoice& choice = {});

}  // namespace perigee

#endif  // PERIGEE_KERNELS_BACKEND_REGISTRY_H_
