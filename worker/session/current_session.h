// The session that lives on this worker: at most one, since a worker is a rank of one group.
#ifndef PERIGEE_WORKER_SESSION_CURRENT_SESSION_H_
#define PERIGEE_WORKER_SESSION_CURRENT_SESSION_H_

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/common/ids.h"
#include "worker/session/session.h"

namespace perigee {

// Thread-safe.
class CurrentSession {
 public:
  std::shared_ptr<Session> Get() const;
  // STALE_OBJECT unless the session is of this group and generation; names both, and what lives.
  absl::StatusOr<std::shared_ptr<Session>> Find(absl::string_view group,
                                                Generation generation) const;
  // What was there before, or null.
  std::shared_ptr<Session> Exchange(std::shared_ptr<Session> session);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Session> session_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_CURRENT_SESSION_H_
