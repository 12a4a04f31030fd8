#include "server/testing/grpc_worker.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "proto/support/grpc_status.h"
#include "server/testing/fake_worker.h"

namespace perigee {

GrpcWorker::GrpcWorker(const std::shared_ptr<grpc::Channel>& channel, int index, int life)
    : worker_(FakeWorker::Describe(index, life)), stub_(v1::TopologyService::NewStub(channel)) {
  grpc::ClientContext context;
  v1::RegisterWorkerRequest request;
  *request.mutable_worker() = worker_;
  v1::RegisterWorkerResponse response;
  const absl::Status registered = FromGrpc(stub_->RegisterWorker(&context, request, &response));
  EXPECT_TRUE(registered.ok()) << registered;
  EXPECT_GT(response.term(), 0u);
  OpenLease();
  OpenCommands();
}

GrpcWorker::~GrpcWorker() { Kill(); }

void GrpcWorker::OpenLease() {
  lease_ = stub_->KeepAlive(&lease_context_);
  v1::KeepAliveRequest heartbeat;
  heartbeat.set_worker(worker_.name());
  heartbeat.set_incarnation(worker_.incarnation());
  heartbeat.set_heartbeat(1);
  v1::KeepAliveResponse reply;
  EXPECT_TRUE(lease_->Write(heartbeat) && lease_->Read(&reply));
  EXPECT_EQ(reply.heartbeat(), 1u);
}

void GrpcWorker::OpenCommands() {
  context_ = std::make_unique<grpc::ClientContext>();
  commands_ = stub_->ReceiveCommands(context_.get());
  v1::WorkerReport report;
  report.mutable_hello()->set_worker(worker_.name());
  report.mutable_hello()->set_incarnation(worker_.incarnation());
  EXPECT_TRUE(commands_->Write(report));
  reader_ = std::thread([this] { Read(); });
}

void GrpcWorker::CloseCommands() {
  if (!reader_.joinable()) return;
  context_->TryCancel();
  reader_.join();
  (void)commands_->Finish();
}

void GrpcWorker::ReopenCommands() {
  CloseCommands();
  std::lock_guard lock(mutex_);
  OpenCommands();
}

void GrpcWorker::Kill() {
  CloseCommands();
  if (lease_ == nullptr) return;
  lease_context_.TryCancel();
  (void)lease_->Finish();
  lease_.reset();
}

void GrpcWorker::Hold(Kind kind) {
  std::lock_guard lock(mutex_);
  held_kinds_.insert(kind);
}

void GrpcWorker::Release() {
  std::lock_guard lock(mutex_);
  held_kinds_.clear();
  for (const v1::WorkerCommand& command : std::exchange(held_, {})) {
    Answer(command, absl::OkStatus());
  }
}

bool GrpcWorker::Await(Kind kind) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return CountSeen(kind) > 0; });
}

size_t GrpcWorker::Count(Kind kind) const {
  std::lock_guard lock(mutex_);
  return CountSeen(kind);
}

std::vector<v1::WorkerCommand> GrpcWorker::Commands() const {
  std::lock_guard lock(mutex_);
  return seen_;
}

size_t GrpcWorker::CountSeen(Kind kind) const {
  return static_cast<size_t>(std::count_if(seen_.begin(), seen_.end(), [kind](const auto& command) {
    return command.command_case() == kind;
  }));
}

void GrpcWorker::Read() {
  v1::WorkerCommand command;
  while (commands_->Read(&command)) Take(command);
}

void GrpcWorker::Take(const v1::WorkerCommand& command) {
  std::lock_guard lock(mutex_);
  seen_.push_back(command);
  changed_.notify_all();
  if (command.has_abort_generation()) {
    for (const v1::WorkerCommand& held : std::exchange(held_, {})) {
      Answer(held, absl::UnavailableError(command.abort_generation().reason()));
    }
  }
  if (held_kinds_.count(command.command_case()) > 0) {
    held_.push_back(command);
  } else {
    Answer(command, absl::OkStatus());
  }
}

void GrpcWorker::Answer(const v1::WorkerCommand& command, const absl::Status& status) {
  commands_->Write(FakeWorker::AnswerTo(command, status));  // false where the stream broke
}

}  // namespace perigee
