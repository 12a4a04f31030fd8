#include "client/lib/remote_plans.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace perigee {

absl::StatusOr<RemotePlans::Plan> RemotePlans::Find(RankId rank, LocalPlanId id) const {
  const auto& own = ranks_[rank.value];
  const auto found = own.find(id.value);
  if (found != own.end()) return found->second;
  return absl::FailedPreconditionError(absl::StrCat(
      "there is no plan ", id.value, " of this rank (", own.size(), " others are kept)"));
}

absl::Status RemotePlans::CheckRoom(RankId rank, LocalPlanId id) const {
  const auto& own = ranks_[rank.value];
  if (own.size() < kMaxRemotePlans || own.count(id.value) > 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("plan ", id.value, " cannot be kept: there are ", kMaxRemotePlans, " already"));
}

std::string RemotePlans::FreeName() const {
  std::set<std::string> used;
  for (const auto& own : ranks_) {
    for (const auto& [id, plan] : own) used.insert(plan.name);
  }
  size_t number = 0;
  while (used.count(absl::StrCat("rank-client/", number)) > 0) ++number;
  return absl::StrCat("rank-client/", number);
}

bool RemotePlans::AnyTarget() const {
  return std::any_of(targets_.begin(), targets_.end(),
                     [](const absl::optional<Target>& target) { return target.has_value(); });
}

absl::StatusOr<RemotePlans::Target> RemotePlans::FindTarget(RankId rank, LocalPlanId id) const {
  const absl::optional<Target>& own = targets_[rank.value];
  if (own && own->plan == id) return *own;
  return absl::FailedPreconditionError(
      absl::StrCat("there is no target '", id.value, "' of this rank; ",
                   own ? absl::StrCat("that of plan ", own->plan.value, " lives") : "none lives"));
}

}  // namespace perigee
