#include "worker/attach/client_users.h"

#include "absl/strings/str_cat.h"

namespace perigee {

absl::Status ClientUsers::CheckUser(const PeerCredentials& connected) const {
  if (connected.uid == own_uid_ || others_.count(connected.uid) > 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("process ", connected.pid, " is of user ", connected.uid, ", expected ",
                   own_uid_, others_.empty() ? "" : " or one that was allowed"));
}

absl::Status ClientUsers::CheckSender(const PeerCredentials& connected,
                                      const absl::optional<PeerCredentials>& sender) const {
  if (absl::Status status = CheckUser(connected); !status.ok()) return status;
  if (!sender) return absl::PermissionDeniedError("the kernel does not say who sent the request");
  if (*sender == connected) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("the request is of process ", sender->pid,
                                                  " of user ", sender->uid, ", the connection of ",
                                                  connected.pid, " of user ", connected.uid));
}

}  // namespace perigee
