#include "worker/testing/fake_coordinator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/common/check.h"
#include "proto/support/grpc_status.h"

namespace perigee {
namespace {

constexpr auto kLong = std::chrono::seconds(30);

void SetDuration(absl::Duration from, google::protobuf::Duration& to) {
  const int64_t ns = absl::ToInt64Nanoseconds(from);
  to.set_seconds(ns / 1'000'000'000);
  to.set_nanos(static_cast<int32_t>(ns % 1'000'000'000));
}

}  // namespace

FakeCoordinator::FakeCoordinator(const std::string& address) {
  server_ = *GrpcServer::Start({address, {this}});
}

FakeCoordinator::~FakeCoordinator() { server_->Shutdown(absl::ZeroDuration()); }

void FakeCoordinator::SetRegistration(const absl::Status& status, uint64_t term) {
  std::lock_guard<std::mutex> lock(mutex_);
  registration_ = status;
  term_ = term;
}

void FakeCoordinator::AnswerRegistrations(bool answer) {
  std::lock_guard<std::mutex> lock(mutex_);
  answer_registrations_ = answer;
  changed_.notify_all();
}

void FakeCoordinator::SetLease(absl::Duration heartbeat_interval, absl::Duration lease_duration) {
  std::lock_guard<std::mutex> lock(mutex_);
  heartbeat_interval_ = heartbeat_interval;
  lease_duration_ = lease_duration;
}

void FakeCoordinator::EndLease(const std::string& worker, const absl::Status& status) {
  std::lock_guard<std::mutex> lock(mutex_);
  workers_[worker].lease_end = status;
}

void FakeCoordinator::AnswerHeartbeats(bool answer) {
  std::lock_guard<std::mutex> lock(mutex_);
  answer_heartbeats_ = answer;
}

void FakeCoordinator::BreakStreams(const std::string& worker) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (grpc::ServerContext* context : workers_[worker].contexts) context->TryCancel();
}

FakeCoordinator::Counts FakeCoordinator::counts(const std::string& worker) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = workers_.find(worker);
  return found == workers_.end() ? Counts() : found->second.counts;
}

bool FakeCoordinator::Await(const std::string& worker,
                            const std::function<bool(const Counts&)>& wanted) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, kLong, [&] { return wanted(workers_[worker].counts); });
}

v1::Worker FakeCoordinator::registered(const std::string& worker) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return workers_.at(worker).worker;
}

v1::WorkerHello FakeCoordinator::last_hello(const std::string& worker) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return workers_.at(worker).hello;
}

v1::KeepAliveRequest FakeCoordinator::last_heartbeat(const std::string& worker) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return workers_.at(worker).heartbeat;
}

uint64_t FakeCoordinator::Send(const std::string& worker, v1::WorkerCommand command) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool open =
      changed_.wait_for(lock, kLong, [&] { return workers_[worker].commands != nullptr; });
  EXPECT_TRUE(open) << worker << " has no command stream";
  if (!open) return 0;
  command.set_command_id(++last_command_id_);
  if (command.term() == 0) command.set_term(1);
  workers_[worker].commands->Write(command);
  return last_command_id_;
}

v1::CommandResult FakeCoordinator::AwaitResult(uint64_t command_id) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool there = changed_.wait_for(lock, kLong, [&] { return results_.count(command_id) > 0; });
  EXPECT_TRUE(there) << "command " << command_id << " was not answered";
  return there ? results_[command_id].front() : v1::CommandResult();
}

int FakeCoordinator::results(uint64_t command_id) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = results_.find(command_id);
  return found == results_.end() ? 0 : static_cast<int>(found->second.size());
}

grpc::Status FakeCoordinator::RegisterWorker(grpc::ServerContext* context,
                                             const v1::RegisterWorkerRequest* request,
                                             v1::RegisterWorkerResponse* response) {
  std::unique_lock<std::mutex> lock(mutex_);
  WorkerState& state = workers_[request->worker().name()];
  state.worker = request->worker();
  ++state.counts.registrations;
  changed_.notify_all();
  // Nothing tells a synchronous call that its caller has gone, so it looks now and then.
  while (!answer_registrations_ && !context->IsCancelled()) {
    changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  response->set_term(term_);
  SetDuration(heartbeat_interval_, *response->mutable_heartbeat_interval());
  SetDuration(lease_duration_, *response->mutable_lease_duration());
  return ToGrpc(registration_);
}

void FakeCoordinator::OpenStream(WorkerState& state, grpc::ServerContext* context) {
  state.contexts.push_back(context);
  ++state.counts.open_streams;
  changed_.notify_all();
}

void FakeCoordinator::CloseStream(WorkerState& state, grpc::ServerContext* context) {
  state.contexts.erase(std::find(state.contexts.begin(), state.contexts.end(), context));
  --state.counts.open_streams;
  changed_.notify_all();
}

grpc::Status FakeCoordinator::KeepAlive(grpc::ServerContext* context, LeaseStream* stream) {
  v1::KeepAliveRequest request;
  if (!stream->Read(&request)) return grpc::Status::OK;
  std::unique_lock<std::mutex> lock(mutex_);
  WorkerState& state = workers_[request.worker()];
  ++state.counts.lease_streams;
  OpenStream(state, context);
  grpc::Status end = grpc::Status::OK;
  do {
    ++state.counts.heartbeats;
    state.heartbeat = request;
    changed_.notify_all();
    if (state.lease_end) {
      end = ToGrpc(*std::exchange(state.lease_end, absl::nullopt));
      break;
    }
    v1::KeepAliveResponse response;
    response.set_heartbeat(request.heartbeat());
    response.set_term(term_);
    if (answer_heartbeats_) stream->Write(response);
    lock.unlock();
    const bool more = stream->Read(&request);
    lock.lock();
    if (!more) break;
  } while (true);
  CloseStream(state, context);
  return end;
}

grpc::Status FakeCoordinator::ReceiveCommands(grpc::ServerContext* context, CommandStream* stream) {
  v1::WorkerReport report;
  if (!stream->Read(&report) || !report.has_hello()) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no hello");
  }
  std::unique_lock<std::mutex> lock(mutex_);
  WorkerState& state = workers_[report.hello().worker()];
  state.hello = report.hello();
  state.commands = stream;
  ++state.counts.command_streams;
  OpenStream(state, context);
  lock.unlock();
  while (stream->Read(&report)) {
    std::lock_guard<std::mutex> reading(mutex_);
    EXPECT_FALSE(report.has_hello());
    if (report.has_result()) results_[report.result().command_id()].push_back(report.result());
    changed_.notify_all();
  }
  lock.lock();
  if (state.commands == stream) state.commands = nullptr;
  CloseStream(state, context);
  return grpc::Status::OK;
}

}  // namespace perigee
