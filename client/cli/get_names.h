// Names of resources as people type them: whole, or without what can only be one thing.
#ifndef PERIGEE_CLIENT_CLI_GET_NAMES_H_
#define PERIGEE_CLIENT_CLI_GET_NAMES_H_

#include <string>

#include "absl/status/statusor.h"

namespace perigee {

enum class ResourceKind { kHost, kWorker, kGroup, kBuffer, kGeneration };

// "workers" or "worker", ... INVALID_ARGUMENT names them all.
absl::StatusOr<ResourceKind> ParseResourceKind(const std::string& word);
// "hosts", "workers", "groups", "buffers", "generations".
const char* CollectionOf(ResourceKind kind);

// What a name given with a kind stands for.
struct ResourceName {
  std::string name;        // full
  bool is_parent = false;  // a group, for its buffers or generations
};

// Takes hosts/h or h; workers/w0 or w0; tenants/default/groups/g or g; for buffers and generations
// the same with /buffers/b or /b (/generations/7 or /7) behind it, or only the group.
// INVALID_ARGUMENT says what was expected.
absl::StatusOr<ResourceName> ParseTypedName(ResourceKind kind, const std::string& text);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_GET_NAMES_H_
