// Backends by name.
#ifndef PERIGEE_KERNELS_BACKEND_REGISTRY_H_
#define PERIGEE_KERNELS_BACKEND_REGISTRY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"

namespace perigee {

// Names that CreateBackend knows.
std::vector<std::string> BackendNames();

// INVALID_ARGUMENT, listing the names, for an unknown one; UNIMPLEMENTED for "cuda", saying which
// devices there are: its data path is not part of this version.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(absl::string_view name);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_BACKEND_REGISTRY_H_
