// Which processes may attach. Logic: the caller brings what the kernel says about them.
#ifndef PERIGEE_WORKER_ATTACH_CLIENT_USERS_H_
#define PERIGEE_WORKER_ATTACH_CLIENT_USERS_H_

#include <cstdint>
#include <set>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "proto/local/unix_socket.h"

namespace perigee {

class ClientUsers {
 public:
  // The worker's own user, and those that the operator allowed beside it.
  ClientUsers(uint32_t own_uid, std::set<uint32_t> others)
      : own_uid_(own_uid), others_(std::move(others)) {}

  // Whether any but the own user may come.
  bool others_allowed() const { return !others_.empty(); }

  // PERMISSION_DENIED unless the user is one of them.
  absl::Status CheckUser(const PeerCredentials& connected) const;
  // The same for who has sent the request: it is the process that connected, and not one that it
  // has passed its connection to.
  absl::Status CheckSender(const PeerCredentials& connected,
                           const absl::optional<PeerCredentials>& sender) const;

 private:
  const uint32_t own_uid_;
  const std::set<uint32_t> others_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_ATTACH_CLIENT_USERS_H_
