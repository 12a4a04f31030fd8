// A client's end of a bidirectional stream on gRPC's callback API: a queue of what is to be sent,
// a callback for what arrives, one end.
#ifndef PERIGEE_WORKER_RPC_BIDI_STREAM_H_
#define PERIGEE_WORKER_RPC_BIDI_STREAM_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "proto/support/grpc_status.h"

namespace perigee {

// Thread-safe. Its destructor cancels the call and waits for its end.
template <typename Request, typename Response>
class BidiStream final : private grpc::ClientBidiReactor<Request, Response> {
 public:
  using Reactor = grpc::ClientBidiReactor<Request, Response>;

  // start: calls the stub's async method. on_message: one at a time, from threads of gRPC. on_end:
  // once, after the last message; ended() is set by then.
  BidiStream(const std::function<void(grpc::ClientContext*, Reactor*)>& start,
             std::function<void(const Response&)> on_message, std::function<void()> on_end)
      : on_message_(std::move(on_message)), on_end_(std::move(on_end)) {
    start(&context_, this);
    this->AddHold();  // for writes from other threads; until the last read
    this->StartRead(&response_);
    this->StartCall();
  }
  ~BidiStream() override {
    context_.TryCancel();
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
  }
  BidiStream(const BidiStream&) = delete;
  BidiStream& operator=(const BidiStream&) = delete;

  // Queues; never blocks.
  void Send(Request request) {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(request));
    WriteNext();
  }
  void Cancel() { context_.TryCancel(); }

  // The status that the call ended with, once it has.
  absl::optional<absl::Status> ended() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return ended_;
  }
  // What was queued and not written; after the end.
  std::deque<Request> TakeUnsent() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(queue_, {});
  }

 private:
  // mutex_ is held. gRPC never calls back from inside StartWrite.
  void WriteNext() {
    if (writing_ || closed_ || queue_.empty()) return;
    writing_ = true;
    this->StartWrite(&queue_.front());
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      on_message_(response_);
      this->StartRead(&response_);
      return;
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      closed_ = true;
    }
    this->RemoveHold();
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    if (!ok) {
      closed_ = true;
      return;
    }
    queue_.pop_front();
    WriteNext();
  }

  void OnDone(const grpc::Status& status) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ended_ = FromGrpc(status);
    }
    on_end_();
    // Nothing may follow: the destructor goes on from here.
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  const std::function<void(const Response&)> on_message_;
  const std::function<void()> on_end_;
  grpc::ClientContext context_;
  Response response_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> queue_;  // its front is being written while writing_
  bool writing_ = false;
  bool closed_ = false;  // no more writes
  bool done_ = false;
  absl::optional<absl::Status> ended_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_RPC_BIDI_STREAM_H_
