#include "worker/session/current_session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/ops/failure_reason.h"

namespace perigee {

std::shared_ptr<Session> CurrentSession::Get() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return session_;
}

absl::StatusOr<std::shared_ptr<Session>> CurrentSession::Find(absl::string_view group,
                                                              Generation generation) const {
  std::shared_ptr<Session> session = Get();
  if (session && session->view().group == group && session->view().generation == generation) {
    return session;
  }
  const std::string lives = session ? absl::StrCat("generation ", session->view().generation.value,
                                                   " of ", session->view().group, " lives here")
                                    : std::string("no generation lives here");
  return StaleObject(
      absl::StrCat("generation ", generation.value, " of ", group, " is asked for; ", lives));
}

std::shared_ptr<Session> CurrentSession::Exchange(std::shared_ptr<Session> session) {
  std::lock_guard<std::mutex> lock(mutex_);
  session_.swap(session);
  return session;
}

}  // namespace perigee
