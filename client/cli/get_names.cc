#include "client/cli/get_names.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/support/resource_name.h"

namespace perigee {
namespace {

absl::StatusOr<ResourceName> Checked(const std::string& name, bool is_parent,
                                     const absl::Status& form) {
  if (!form.ok()) return form;
  return ResourceName{name, is_parent};
}

// A buffer's or generation's whole name from "g/b" or itself, a group's from "g" or itself.
std::pair<std::string, bool> Complete(const std::string& text, const std::string& collection) {
  if (absl::StartsWith(text, "tenants/")) {
    return {text, !absl::StrContains(text, absl::StrCat("/", collection, "/"))};
  }
  const std::vector<std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  const std::string group = GroupName(kDefaultTenant, parts[0]);
  if (parts.size() == 1) return {group, true};
  return {absl::StrCat(group, "/", collection, "/", parts[1]), false};
}

}  // namespace

absl::StatusOr<ResourceKind> ParseResourceKind(const std::string& word) {
  for (const ResourceKind kind : {ResourceKind::kHost, ResourceKind::kWorker, ResourceKind::kGroup,
                                  ResourceKind::kBuffer, ResourceKind::kGeneration}) {
    const std::string collection = CollectionOf(kind);
    if (word == collection || word == collection.substr(0, collection.size() - 1)) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", word.substr(0, 80),
                                                 "' is none of hosts, workers, groups, buffers, "
                                                 "generations"));
}

const char* CollectionOf(ResourceKind kind) {
  switch (kind) {
    case ResourceKind::kHost:
      return "hosts";
    case ResourceKind::kWorker:
      return "workers";
    case ResourceKind::kGroup:
      return "groups";
    case ResourceKind::kBuffer:
      return "buffers";
    case ResourceKind::kGeneration:
      return "generations";
  }
  return "";
}

absl::StatusOr<ResourceName> ParseTypedName(ResourceKind kind, const std::string& text) {
  if (kind == ResourceKind::kHost) {
    // Hosts have the names that workers give them, of any letters.
    return ResourceName{absl::StartsWith(text, "hosts/") ? text : absl::StrCat("hosts/", text)};
  }
  if (kind == ResourceKind::kWorker) {
    const std::string name = absl::StartsWith(text, "workers/") ? text : WorkerName(text);
    return Checked(name, false, ParseWorkerName(name).status());
  }
  if (kind == ResourceKind::kGroup) {
    const std::string name =
        absl::StartsWith(text, "tenants/") ? text : GroupName(kDefaultTenant, text);
    return Checked(name, false, ParseGroupName(name).status());
  }
  const auto [name, is_parent] = Complete(text, CollectionOf(kind));
  if (is_parent) return Checked(name, true, ParseGroupName(name).status());
  return Checked(name, false,
                 kind == ResourceKind::kBuffer ? ParseBufferName(name).status()
                                               : ParseGenerationName(name).status());
}

}  // namespace perigee
