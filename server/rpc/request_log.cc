#include "server/rpc/request_log.h"

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"

namespace perigee {

absl::StatusOr<bool> RequestLog::Begin(const Key& key, const std::string& request, Waiter waiter) {
  if (key.second.size() > kMaxIdBytes) {
    return absl::InvalidArgumentError(absl::StrCat("request_id has ", key.second.size(),
                                                   " bytes, expected at most ", kMaxIdBytes));
  }
  const size_t fingerprint = std::hash<std::string>()(request);
  Answer answer;
  {
    std::lock_guard lock(mutex_);
    Forget(clock_.Monotonic());
    auto found = entries_.find(key);
    if (found == entries_.end()) {
      if (entries_.size() >= kMaxEntries) {
        return absl::ResourceExhaustedError(
            absl::StrCat(entries_.size(), " calls are under way, expected fewer"));
      }
      found = entries_.emplace(key, Entry{fingerprint, false, {}, {}}).first;
      found->second.waiters.push_back(std::move(waiter));
      return true;
    }
    if (found->second.fingerprint != fingerprint) {
      return absl::InvalidArgumentError(
          absl::StrCat("request_id '", key.second, "' was used for another request before"));
    }
    if (!found->second.answered) {
      found->second.waiters.push_back(std::move(waiter));
      return false;
    }
    answer = found->second.answer;
  }
  waiter(answer);
  return false;
}

void RequestLog::Complete(const Key& key, Answer answer) {
  std::vector<Waiter> waiters;
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    PERIGEE_CHECK(found != entries_.end() && !found->second.answered);
    found->second.answered = true;
    found->second.answer = answer;
    waiters = std::move(found->second.waiters);
    answered_.emplace_back(clock_.Monotonic(), key);
  }
  for (const Waiter& waiter : waiters) waiter(answer);
}

void RequestLog::Settle(const Key& key, const Answer& answer) {
  std::vector<Waiter> waiters;
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    PERIGEE_CHECK(found != entries_.end() && !found->second.answered);
    waiters = std::move(found->second.waiters);
    entries_.erase(found);
  }
  for (const Waiter& waiter : waiters) waiter(answer);
}

void RequestLog::Forget(absl::Duration now) {
  while (!answered_.empty() &&
         (entries_.size() >= kMaxEntries || now - answered_.front().first >= kRequestIdLife)) {
    entries_.erase(answered_.front().second);
    answered_.pop_front();
  }
}

}  // namespace perigee
