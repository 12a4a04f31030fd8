// The sending half of a stream: takes messages from any thread without blocking and gives them to a
// gRPC reactor one at a time, because a reactor holds one write. What waits is kept in a Mailbox
// (server/rpc/mailbox.h), which decides what may be left out.
#ifndef PERIGEE_SERVER_RPC_OUTBOX_H_
#define PERIGEE_SERVER_RPC_OUTBOX_H_

#include <mutex>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "grpcpp/support/status.h"

namespace perigee {

// Thread-safe. Owned by the reactor and the sink together; calls on it do nothing once the reactor
// has finished. A message counts as sent from the moment gRPC has it: whether it arrives on a
// stream that breaks, nobody on this side can tell.
template <typename Reactor, typename Message, typename Mailbox>
class Outbox {
 public:
  // `reactor` lives until Finish has been called on it and its OnDone has run.
  explicit Outbox(Reactor& reactor) : reactor_(reactor) {}

  // False: too much waits already; the message was not taken.
  bool Push(const Message& message) {
    std::lock_guard lock(mutex_);
    if (end_) return true;
    if (writing_ || stopped_) return mailbox_.Push(message);
    Write(message);
    return true;
  }
  // Finishes the reactor with `status` when what waits has been sent. Only the first counts.
  void End(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    if (end_) return;
    end_ = status;
    if (!writing_) reactor_.Finish(status);
  }
  // As End, but what waits is not sent.
  void EndNow(const grpc::Status& status) {
    std::lock_guard lock(mutex_);
    mailbox_.Clear();
    if (end_) return;
    end_ = status;
    if (!writing_) reactor_.Finish(status);
  }
  // What waits, in order; gRPC has not had it and is given nothing any more. The stream is still to
  // be ended.
  std::vector<Message> TakeUnsent() {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    std::vector<Message> unsent;
    while (auto next = mailbox_.Pop()) unsent.push_back(*std::move(next));
    return unsent;
  }
  // For the reactor's OnWriteDone. After a write that failed the stream is broken: what waits then
  // is not sent on it.
  void OnWriteDone(bool ok) {
    std::lock_guard lock(mutex_);
    writing_ = false;
    if (!ok) stopped_ = true;
    if (auto next = stopped_ ? absl::nullopt : mailbox_.Pop()) {
      Write(*next);
    } else if (end_) {
      reactor_.Finish(*end_);
    }
  }

 private:
  void Write(const Message& message) {
    current_ = message;
    writing_ = true;
    reactor_.StartWrite(&current_);
  }

  Reactor& reactor_;
  std::mutex mutex_;
  Mailbox mailbox_;
  Message current_;  // that gRPC reads while writing_
  bool writing_ = false;
  bool stopped_ = false;  // nothing more is written
  absl::optional<grpc::Status> end_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_OUTBOX_H_
