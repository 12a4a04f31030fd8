// What waits for a stream whose last message is still on its way: how much is kept, and what of it
// may be left out. Not thread-safe.
#ifndef PERIGEE_SERVER_RPC_MAILBOX_H_
#define PERIGEE_SERVER_RPC_MAILBOX_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "absl/types/optional.h"
#include "proto/v1/groups.pb.h"

namespace perigee {

// Everything, in order, up to a limit.
template <typename Message, size_t kLimit>
class FifoMailbox {
 public:
  // False: full; the message was not taken.
  bool Push(const Message& message) {
    if (waiting_.size() >= kLimit) return false;
    waiting_.push_back(message);
    return true;
  }
  absl::optional<Message> Pop() {
    if (waiting_.empty()) return absl::nullopt;
    absl::optional<Message> first(std::move(waiting_.front()));
    waiting_.pop_front();
    return first;
  }
  void Clear() { waiting_.clear(); }

 private:
  std::deque<Message> waiting_;
};

// The latest only.
template <typename Message>
class LatestMailbox {
 public:
  bool Push(const Message& message) {
    latest_ = message;
    return true;
  }
  absl::optional<Message> Pop() { return std::exchange(latest_, absl::nullopt); }
  void Clear() { latest_.reset(); }

 private:
  absl::optional<Message> latest_;
};

// One message that holds the latest progress of each rank.
class ProgressMailbox {
 public:
  bool Push(const v1::ExecuteProgramResponse& message);
  absl::optional<v1::ExecuteProgramResponse> Pop();
  void Clear();

 private:
  absl::optional<v1::ExecuteProgramResponse> merged_;  // without progress
  std::map<int32_t, v1::ProgramProgress> progress_;    // by rank
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_MAILBOX_H_
