#include "proto/support/resource_name.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/types/optional.h"

namespace perigee {
namespace {

constexpr size_t kMaxIdLength = 63;

absl::Status WrongForm(absl::string_view name, absl::string_view form) {
  return absl::InvalidArgumentError(
      absl::StrCat("name '", name, "' does not have the form ", form));
}

// The segments that follow the collection words, or nullopt where the name is not of that form.
absl::optional<std::vector<std::string>> Match(absl::string_view name,
                                               const std::vector<absl::string_view>& collections) {
  const std::vector<std::string> segments = absl::StrSplit(name, '/');
  if (segments.size() != 2 * collections.size()) return absl::nullopt;
  std::vector<std::string> ids;
  for (size_t i = 0; i < collections.size(); ++i) {
    if (segments[2 * i] != collections[i] || !IsValidId(segments[2 * i + 1])) return absl::nullopt;
    ids.push_back(segments[2 * i + 1]);
  }
  return ids;
}

}  // namespace

bool IsValidId(absl::string_view id) {
  if (id.empty() || id.size() > kMaxIdLength || id[0] == '-') return false;
  return std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) ||
           absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '-';
  });
}

absl::Status CheckId(absl::string_view what, absl::string_view id) {
  if (IsValidId(id)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " '", id, "': expected 1 to ", kMaxIdLength,
                   " lower-case letters, digits and dashes, the first not a dash"));
}

std::string WorkerName(absl::string_view worker_id) { return absl::StrCat("workers/", worker_id); }

std::string GroupName(absl::string_view tenant_name, absl::string_view group_id) {
  return absl::StrCat(tenant_name, "/groups/", group_id);
}

std::string BufferName(absl::string_view group_name, absl::string_view buffer_id) {
  return absl::StrCat(group_name, "/buffers/", buffer_id);
}

std::string GenerationName(absl::string_view group_name, Generation generation) {
  return absl::StrCat(group_name, "/generations/", generation.value);
}

std::string GroupNameParts::tenant_name() const { return absl::StrCat("tenants/", tenant_id); }

std::string GroupNameParts::group_name() const { return GroupName(tenant_name(), group_id); }

absl::StatusOr<std::string> ParseWorkerName(absl::string_view name) {
  const auto ids = Match(name, {"workers"});
  if (!ids) return WrongForm(name, "workers/{w}");
  return (*ids)[0];
}

absl::StatusOr<std::string> ParseTenantName(absl::string_view name) {
  const auto ids = Match(name, {"tenants"});
  if (!ids) return WrongForm(name, "tenants/{t}");
  return (*ids)[0];
}

absl::StatusOr<GroupNameParts> ParseGroupName(absl::string_view name) {
  const auto ids = Match(name, {"tenants", "groups"});
  if (!ids) return WrongForm(name, "tenants/{t}/groups/{g}");
  return GroupNameParts{(*ids)[0], (*ids)[1]};
}

absl::StatusOr<BufferNameParts> ParseBufferName(absl::string_view name) {
  const auto ids = Match(name, {"tenants", "groups", "buffers"});
  if (!ids) return WrongForm(name, "tenants/{t}/groups/{g}/buffers/{b}");
  return BufferNameParts{{(*ids)[0], (*ids)[1]}, (*ids)[2]};
}

absl::StatusOr<GenerationNameParts> ParseGenerationName(absl::string_view name) {
  const auto ids = Match(name, {"tenants", "groups", "generations"});
  uint64_t generation = 0;
  if (!ids || !absl::SimpleAtoi((*ids)[2], &generation)) {
    return WrongForm(name, "tenants/{t}/groups/{g}/generations/{n}");
  }
  return GenerationNameParts{{(*ids)[0], (*ids)[1]}, Generation(generation)};
}

}  // namespace perigee
