// Answers to request_ids: a repeated call gets the first one's answer instead of a second effect.
#ifndef PERIGEE_SERVER_RPC_REQUEST_LOG_H_
#define PERIGEE_SERVER_RPC_REQUEST_LOG_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/clock.h"
#include "proto/support/defaults.h"
#include "server/rpc/reply.h"

namespace perigee {

// Thread-safe. Calls waiters without its mutex held.
class RequestLog {
 public:
  static constexpr size_t kMaxEntries = 10000;
  static constexpr size_t kMaxIdBytes = 128;

  struct Answer {
    absl::Status status;
    absl::optional<v1::GroupError> error;
    std::string message;  // serialized
  };
  using Waiter = std::function<void(const Answer&)>;
  using Key = std::pair<std::string, std::string>;  // method, request_id

  // `clock` outlives it.
  explicit RequestLog(const Clock& clock) : clock_(clock) {}

  // True: the first of its kind; the caller runs it and calls Complete once, which answers
  // `waiter`. False: it has run, and `waiter` has its answer now, or it runs, and `waiter` gets it
  // with the first. INVALID_ARGUMENT: the id is too long or was used for another request (by its
  // bytes); RESOURCE_EXHAUSTED: too many calls run. `waiter` is then not called.
  absl::StatusOr<bool> Begin(const Key& key, const std::string& request, Waiter waiter);
  // Kept for kRequestIdLife, unless there are more than kMaxEntries: then the oldest is forgotten.
  void Complete(const Key& key, Answer answer);
  // Answers those that wait, and keeps nothing: whoever asks again runs again.
  void Settle(const Key& key, const Answer& answer);

 private:
  struct Entry {
    size_t fingerprint = 0;
    bool answered = false;
    Answer answer;
    std::vector<Waiter> waiters;
  };

  void Forget(absl::Duration now);

  const Clock& clock_;
  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::deque<std::pair<absl::Duration, Key>> answered_;  // oldest first
};

// What RunOnce and RunJoined share; `end` tells the log that a call has ended.
template <typename Message, typename Request, typename Start, typename End>
void RunLogged(RequestLog& log, const std::string& method, const Request& request,
               const ReplyFunction<Message>& reply, const Start& start, const End& end) {
  if (request.request_id().empty()) {
    start(reply);
    return;
  }
  const RequestLog::Key key{method, request.request_id()};
  const auto first = log.Begin(key, request.SerializeAsString(), [reply](const auto& answer) {
    Reply<Message> repeated{answer.status, answer.error, {}};
    repeated.message.ParseFromString(answer.message);
    reply(repeated);
  });
  if (!first.ok()) {
    reply({first.status(), {}, {}});
  } else if (*first) {
    start([&log, key, end](const Reply<Message>& result) {
      end(log, key, {result.status, result.error, result.message.SerializeAsString()});
    });
  }
}

// Runs `start` for the first request of this id, and gives every repetition the same reply. Without
// a request_id every call is a first one. `start` gets the ReplyFunction to call.
template <typename Message, typename Request, typename Start>
void RunOnce(RequestLog& log, const std::string& method, const Request& request,
             const ReplyFunction<Message>& reply, const Start& start) {
  RunLogged<Message>(log, method, request, reply, start,
                     [](RequestLog& to, const RequestLog::Key& key, RequestLog::Answer answer) {
                       to.Complete(key, std::move(answer));
                     });
}

// The same for calls whose answers are kept elsewhere: it joins requests that are under way at the
// same time, and one that comes later is a first one again.
template <typename Message, typename Request, typename Start>
void RunJoined(RequestLog& log, const std::string& method, const Request& request,
               const ReplyFunction<Message>& reply, const Start& start) {
  RunLogged<Message>(log, method, request, reply, start,
                     [](RequestLog& to, const RequestLog::Key& key, RequestLog::Answer answer) {
                       to.Settle(key, answer);
                     });
}

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_REQUEST_LOG_H_
