#include "server/rpc/worker_streams.h"

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/support/grpc_status.h"
#include "server/rpc/mailbox.h"
#include "server/rpc/outbox.h"

namespace perigee {
namespace {

// A worker that leaves this many messages unread is not reading.
constexpr size_t kMaxWaiting = 10000;

absl::Status Unread() {
  return absl::ResourceExhaustedError(
      absl::StrCat("more than ", kMaxWaiting, " messages wait for the worker to read them"));
}

// What both streams share: reading one message after the other, and the end.
template <typename In, typename Out>
class WorkerReactor : public grpc::ServerBidiReactor<In, Out> {
 public:
  using Box = Outbox<grpc::ServerBidiReactor<In, Out>, Out, FifoMailbox<Out, kMaxWaiting>>;

  WorkerReactor(grpc::CallbackServerContext& context, ControlPlane& control)
      : control_(control), context_(context), outbox_(std::make_shared<Box>(*this)) {
    this->StartRead(&message_);
  }

  void OnReadDone(bool ok) final {
    if (!ok) return Close(absl::OkStatus(), !context_.IsCancelled());
    const absl::Status status = Take(message_);
    if (!status.ok()) return Close(status, false);
    this->StartRead(&message_);
  }
  void OnWriteDone(bool ok) final { outbox_->OnWriteDone(ok); }
  void OnDone() final { delete this; }

 protected:
  // The next message. An error ends the stream.
  virtual absl::Status Take(const In& message) = 0;

  ControlPlane& control_;
  StreamId stream_ = 0;  // 0 before the first message was accepted

  std::shared_ptr<Box> outbox() const { return outbox_; }

 private:
  void Close(const absl::Status& status, bool orderly) {
    if (stream_ != 0) control_.CloseStream(stream_, orderly);
    outbox_->EndNow(ToGrpc(status));
  }

  grpc::CallbackServerContext& context_;
  const std::shared_ptr<Box> outbox_;
  In message_;
};

class LeaseStream final : public WorkerReactor<v1::KeepAliveRequest, v1::KeepAliveResponse> {
 public:
  using WorkerReactor::WorkerReactor;

 private:
  class Sink final : public StreamSink {
   public:
    explicit Sink(std::shared_ptr<Box> outbox) : outbox_(std::move(outbox)) {}
    void End(const absl::Status& status) override { outbox_->EndNow(ToGrpc(status)); }

   private:
    const std::shared_ptr<Box> outbox_;
  };

  absl::Status Take(const v1::KeepAliveRequest& message) override {
    if (stream_ == 0) {
      const auto opened = control_.OpenLease(message.worker(), message.incarnation(),
                                             std::make_shared<Sink>(outbox()));
      if (!opened.ok()) return opened.status();
      stream_ = *opened;
    }
    const auto response = control_.TakeHeartbeat(stream_, message);
    if (!response.ok()) return response.status();
    return outbox()->Push(*response) ? absl::OkStatus() : Unread();
  }
};

class CommandStream final : public WorkerReactor<v1::WorkerReport, v1::WorkerCommand> {
 public:
  using WorkerReactor::WorkerReactor;

 private:
  class Sink final : public CommandSink {
   public:
    explicit Sink(std::shared_ptr<Box> outbox) : outbox_(std::move(outbox)) {}
    void Send(const v1::WorkerCommand& command) override {
      if (!outbox_->Push(command)) End(Unread());
    }
    std::vector<v1::WorkerCommand> TakeUnsent() override { return outbox_->TakeUnsent(); }
    void End(const absl::Status& status) override { outbox_->EndNow(ToGrpc(status)); }

   private:
    const std::shared_ptr<Box> outbox_;
  };

  absl::Status Take(const v1::WorkerReport& message) override {
    if (message.has_hello() != (stream_ == 0)) {
      return absl::InvalidArgumentError("expected hello as the first report and only as the first");
    }
    if (stream_ != 0) {
      control_.TakeReport(stream_, message);
      return absl::OkStatus();
    }
    const auto opened = control_.OpenCommands(message.hello(), std::make_shared<Sink>(outbox()));
    if (!opened.ok()) return opened.status();
    stream_ = *opened;
    return absl::OkStatus();
  }
};

}  // namespace

grpc::ServerBidiReactor<v1::KeepAliveRequest, v1::KeepAliveResponse>* NewLeaseStream(
    grpc::CallbackServerContext& context, ControlPlane& control) {
  return new LeaseStream(context, control);
}

grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerCommand>* NewCommandStream(
    grpc::CallbackServerContext& context, ControlPlane& control) {
  return new CommandStream(context, control);
}

}  // namespace perigee
