#include "worker/rpc/worker_service.h"

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/grpc_status.h"
#include "proto/support/resource_name.h"
#include "worker/ops/failure_reason.h"
#include "worker/rpc/idle_timer.h"
#include "worker/session/tensor_download.h"
#include "worker/session/tensor_upload.h"

namespace perigee {
namespace {

constexpr char kErrorMetadata[] = "perigee-error-bin";

absl::StatusOr<std::shared_ptr<SessionBuffer>> FindBuffer(const CurrentSession& current,
                                                          const v1::TensorTarget& target) {
  absl::StatusOr<BufferNameParts> name = ParseBufferName(target.buffer());
  if (!name.ok()) return name.status();
  absl::StatusOr<std::shared_ptr<Session>> session =
      current.Find(name->group.group_name(), Generation(target.generation()));
  if (!session.ok()) return session.status();
  return (*session)->FindBuffer(target.buffer());
}

// The one end of a call, whichever thread comes first with it.
template <typename Reactor>
class CallEnd {
 public:
  CallEnd(grpc::CallbackServerContext* context, Reactor* reactor)
      : context_(context), reactor_(reactor) {}

  // False when the call has ended already.
  bool Finish(const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (finished_) return false;
    finished_ = true;
    if (!status.ok()) {
      v1::RankStatus detail;
      detail.set_rank(-1);
      detail.set_code(static_cast<int32_t>(status.code()));
      detail.set_message(std::string(status.message()));
      detail.set_reason(ReasonOf(status));
      context_->AddTrailingMetadata(kErrorMetadata, detail.SerializeAsString());
    }
    reactor_->Finish(ToGrpc(status));
    return true;
  }

 private:
  grpc::CallbackServerContext* const context_;
  Reactor* const reactor_;
  std::mutex mutex_;
  bool finished_ = false;
};

absl::Status Idle(absl::Duration timeout) {
  return absl::DeadlineExceededError(
      absl::StrCat("the stream was silent for ", absl::FormatDuration(timeout)));
}

class WriteCall final : public grpc::ServerReadReactor<v1::WriteTensorRequest> {
 public:
  WriteCall(const CurrentSession& current, absl::Duration idle_timeout,
            grpc::CallbackServerContext* context, v1::WriteTensorResponse* response)
      : current_(current),
        response_(response),
        end_(context, this),
        idle_timer_(idle_timeout, [this, idle_timeout] { end_.Finish(Idle(idle_timeout)); }) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    idle_timer_.Touch();
    const absl::Status status = ok ? Take() : Complete();
    if (ok && status.ok()) {
      StartRead(&request_);
      return;
    }
    // First, so that whoever is told of a failure may try again.
    upload_.reset();
    end_.Finish(status);
  }
  void OnDone() override { delete this; }

 private:
  absl::Status Take() {
    if (request_.data().size() > kTensorChunkBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a chunk has ", request_.data().size(), " bytes, expected at most ", kTensorChunkBytes));
    }
    if (!upload_) {
      if (absl::Status status = Begin(); !status.ok()) return status;
    } else if (request_.has_target() || request_.has_header()) {
      return absl::InvalidArgumentError("a later message has a target or a header");
    }
    return upload_->Append(request_.data());
  }

  absl::Status Begin() {
    if (!request_.has_target() || !request_.has_header()) {
      return absl::InvalidArgumentError("the first message has no target or no header");
    }
    absl::StatusOr<std::shared_ptr<SessionBuffer>> buffer = FindBuffer(current_, request_.target());
    if (!buffer.ok()) return buffer.status();
    absl::StatusOr<std::unique_ptr<TensorUpload>> upload =
        TensorUpload::Begin(*std::move(buffer), request_.target(), request_.header());
    if (upload.ok()) upload_ = *std::move(upload);
    return upload.status();
  }

  absl::Status Complete() {
    if (!upload_) return absl::InvalidArgumentError("the stream ended before its first message");
    response_->set_size_bytes(upload_->written_bytes());
    return upload_->Finish();
  }

  const CurrentSession& current_;
  v1::WriteTensorResponse* const response_;
  v1::WriteTensorRequest request_;
  std::unique_ptr<TensorUpload> upload_;
  CallEnd<WriteCall> end_;
  IdleTimer idle_timer_;  // last: it goes first
};

class ReadCall final : public grpc::ServerWriteReactor<v1::ReadTensorResponse> {
 public:
  ReadCall(const CurrentSession& current, absl::Duration idle_timeout,
           grpc::CallbackServerContext* context, const v1::ReadTensorRequest& request)
      : end_(context, this),
        idle_timer_(idle_timeout, [this, idle_timeout] { end_.Finish(Idle(idle_timeout)); }) {
    absl::Status status = Begin(current, request.target());
    if (!status.ok()) {
      end_.Finish(status);
      return;
    }
    *response_.mutable_header() = ToHeader(download_->spec());
    StartWrite(&response_);
  }

  void OnWriteDone(bool ok) override {
    idle_timer_.Touch();
    if (!ok) {
      end_.Finish(absl::CancelledError("the client has gone"));
      return;
    }
    absl::StatusOr<std::string> bytes = download_->Next(kTensorChunkBytes);
    if (!bytes.ok() || bytes->empty()) {
      end_.Finish(bytes.status());
      return;
    }
    response_.clear_header();
    response_.set_data(*std::move(bytes));
    StartWrite(&response_);
  }
  void OnDone() override { delete this; }

 private:
  absl::Status Begin(const CurrentSession& current, const v1::TensorTarget& target) {
    absl::StatusOr<std::shared_ptr<SessionBuffer>> buffer = FindBuffer(current, target);
    if (!buffer.ok()) return buffer.status();
    absl::StatusOr<std::unique_ptr<TensorDownload>> download =
        TensorDownload::Begin(*std::move(buffer), target);
    if (download.ok()) download_ = *std::move(download);
    return download.status();
  }

  v1::ReadTensorResponse response_;
  std::unique_ptr<TensorDownload> download_;
  CallEnd<ReadCall> end_;
  IdleTimer idle_timer_;  // last: it goes first
};

}  // namespace

grpc::ServerReadReactor<v1::WriteTensorRequest>* WorkerService::WriteTensor(
    grpc::CallbackServerContext* context, v1::WriteTensorResponse* response) {
  return new WriteCall(current_, idle_timeout_, context, response);
}

grpc::ServerWriteReactor<v1::ReadTensorResponse>* WorkerService::ReadTensor(
    grpc::CallbackServerContext* context, const v1::ReadTensorRequest* request) {
  return new ReadCall(current_, idle_timeout_, context, *request);
}

}  // namespace perigee
