// Names of resources: workers/{w}, tenants/{t}/groups/{g}, .../buffers/{b}, .../generations/{n}.
// Every segment chosen by a user is an id: lower-case letters, digits and dashes, first a letter or
// digit, at most 63 characters.
#ifndef PERIGEE_PROTO_SUPPORT_RESOURCE_NAME_H_
#define PERIGEE_PROTO_SUPPORT_RESOURCE_NAME_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/common/ids.h"

namespace perigee {

// The tenant of everything before tenants exist for users.
inline constexpr const char* kDefaultTenant = "tenants/default";

bool IsValidId(absl::string_view id);
// INVALID_ARGUMENT that says what `what` ("worker name") must look like.
absl::Status CheckId(absl::string_view what, absl::string_view id);

std::string WorkerName(absl::string_view worker_id);
std::string GroupName(absl::string_view tenant_name, absl::string_view group_id);
std::string BufferName(absl::string_view group_name, absl::string_view buffer_id);
std::string GenerationName(absl::string_view group_name, Generation generation);

struct GroupNameParts {
  std::string tenant_id;
  std::string group_id;
  std::string tenant_name() const;
  std::string group_name() const;
};
struct BufferNameParts {
  GroupNameParts group;
  std::string buffer_id;
};
struct GenerationNameParts {
  GroupNameParts group;
  Generation generation;
};

// Each: INVALID_ARGUMENT with the name and the form expected.
absl::StatusOr<std::string> ParseWorkerName(absl::string_view name);  // its id
absl::StatusOr<std::string> ParseTenantName(absl::string_view name);  // its id
absl::StatusOr<GroupNameParts> ParseGroupName(absl::string_view name);
absl::StatusOr<BufferNameParts> ParseBufferName(absl::string_view name);
absl::StatusOr<GenerationNameParts> ParseGenerationName(absl::string_view name);

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_RESOURCE_NAME_H_
