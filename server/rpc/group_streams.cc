#include "server/rpc/group_streams.h"

#include <memory>
#include <utility>

#include "proto/support/grpc_status.h"
#include "proto/support/resource_name.h"
#include "server/rpc/mailbox.h"
#include "server/rpc/outbox.h"
#include "server/rpc/unary.h"

namespace perigee {
namespace {

class GroupStream final : public grpc::ServerWriteReactor<v1::Group> {
 public:
  using Box = Outbox<grpc::ServerWriteReactor<v1::Group>, v1::Group, LatestMailbox<v1::Group>>;

  GroupStream(const std::string& name, ControlPlane& control)
      : control_(control), outbox_(std::make_shared<Box>(*this)) {
    absl::Status status = ParseGroupName(name).status();
    if (status.ok()) {
      const auto watch = control_.WatchGroup(name, std::make_shared<Sink>(outbox_));
      if (watch.ok()) watch_ = *watch;
      status = watch.status();
    }
    if (!status.ok()) outbox_->EndNow(ToGrpc(status));
  }

  void OnWriteDone(bool ok) override { outbox_->OnWriteDone(ok); }
  void OnCancel() override {
    control_.Unwatch(watch_);
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

  ControlPlane& control_;
  const std::shared_ptr<Box> outbox_;
  WatchId watch_ = 0;
};

class ProgramStream final : public grpc::ServerWriteReactor<v1::ExecuteProgramResponse> {
 public:
  using Box = Outbox<grpc::ServerWriteReactor<v1::ExecuteProgramResponse>,
                     v1::ExecuteProgramResponse, ProgressMailbox>;

  ProgramStream(grpc::CallbackServerContext& context, const v1::ExecuteProgramRequest& request,
                ControlPlane& control)
      : control_(control), outbox_(std::make_shared<Box>(*this)) {
    const absl::Status status = ParseBufferName(request.buffer()).status();
    if (!status.ok()) {
      outbox_->EndNow(ToGrpc(status));
      return;
    }
    call_ = control_.ExecuteProgram(request, std::make_shared<Sink>(context, outbox_));
  }

  void OnWriteDone(bool ok) override { outbox_->OnWriteDone(ok); }
  // The program goes on to the next operation that all ranks enter; its end finishes the stream.
  void OnCancel() override { control_.CancelProgram(call_); }
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

  ControlPlane& control_;
  const std::shared_ptr<Box> outbox_;
  CallId call_ = 0;
};

}  // namespace

grpc::ServerWriteReactor<v1::Group>* NewGroupStream(const std::string& name,
                                                    ControlPlane& control) {
  return new GroupStream(name, control);
}

grpc::ServerWriteReactor<v1::ExecuteProgramResponse>* NewProgramStream(
    grpc::CallbackServerContext& context, const v1::ExecuteProgramRequest& request,
    ControlPlane& control) {
  return new ProgramStream(context, request, control);
}

}  // namespace perigee
