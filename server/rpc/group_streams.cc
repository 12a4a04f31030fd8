#include "server/rpc/group_streams.h"

#include <memory>
#include <utility>

#include "proto/support/grpc_status.h"
#include "server/rpc/mailbox.h"
#include "server/rpc/outbox.h"
#include "server/rpc/unary.h"

namespace perigee {
namespace {

class GroupStream final : public grpc::ServerWriteReactor<v1::Group> {
 public:
  using Box = Outbox<grpc::ServerWriteReactor<v1::Group>, v1::Group, LatestMailbox<v1::Group>>;

  GroupStream(const v1::WatchGroupRequest& request, GroupHandler& handler)
      : handler_(handler), outbox_(std::make_shared<Box>(*this)) {
    const auto watch = handler_.Watch(request, std::make_shared<Sink>(outbox_));
    if (watch.ok()) {
      watch_ = *watch;
    } else {
      outbox_->EndNow(ToGrpc(watch.status()));
    }
  }

  void OnWriteDone(bool ok) override { outbox_->OnWriteDone(ok); }
  void OnCancel() override {
    handler_.Unwatch(watch_);
    outbox_->EndNow(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  class Sink final : public GroupSink {
   public:
    explicit Sink(std::shared_ptr<Box> outbox) : outbox_(std::move(outbox)) {}
    void Update(const v1::Group& group) override { outbox_->Push(group); }
    void End(const absl::Status& status) override { outbox_->End(ToGrpc(status)); }

   private:
    const std::shared_ptr<Box> outbox_;
  };

  GroupHandler& handler_;
  const std::shared_ptr<Box> outbox_;
  WatchId watch_ = 0;
};

class ProgramStream final : public grpc::ServerWriteReactor<v1::ExecuteProgramResponse> {
 public:
  using Box = Outbox<grpc::ServerWriteReactor<v1::ExecuteProgramResponse>,
                     v1::ExecuteProgramResponse, ProgressMailbox>;

  ProgramStream(grpc::CallbackServerContext& context, const v1::ExecuteProgramRequest& request,
                GroupHandler& handler)
      : handler_(handler), outbox_(std::make_shared<Box>(*this)) {
    call_ = handler_.Execute(request, std::make_shared<Sink>(context, outbox_));
  }

  void OnWriteDone(bool ok) override { outbox_->OnWriteDone(ok); }
  // The program goes on to the next operation that all ranks enter; its end finishes the stream.
  void OnCancel() override { handler_.Cancel(call_); }
  void OnDone() override { delete this; }

 private:
  class Sink final : public ProgramSink {
   public:
    Sink(grpc::CallbackServerContext& context, std::shared_ptr<Box> outbox)
        : context_(context), outbox_(std::move(outbox)) {}
    void Progress(const v1::ExecuteProgramResponse& message) override { outbox_->Push(message); }
    void Finish(const CallResult& result) override {
      outbox_->End(EndStatus(context_, result.status, result.error));
    }

   private:
    // Lives until the stream is finished, which is Finish's to do.
    grpc::CallbackServerContext& context_;
    const std::shared_ptr<Box> outbox_;
  };

  GroupHandler& handler_;
  const std::shared_ptr<Box> outbox_;
  CallId call_ = 0;
};

}  // namespace

grpc::ServerWriteReactor<v1::Group>* NewGroupStream(const v1::WatchGroupRequest& request,
                                                    GroupHandler& handler) {
  return new GroupStream(request, handler);
}

grpc::ServerWriteReactor<v1::ExecuteProgramResponse>* NewProgramStream(
    grpc::CallbackServerContext& context, const v1::ExecuteProgramRequest& request,
    GroupHandler& handler) {
  return new ProgramStream(context, request, handler);
}

}  // namespace perigee
