#include "worker/rpc/coordinator_link.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "proto/support/defaults.h"
#include "proto/support/event_log.h"
#include "proto/support/grpc_status.h"

namespace perigee {
namespace {

// Reports that wait while the command stream is broken; progress beyond it is dropped.
constexpr size_t kMaxWaitingReports = 1024;

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A connection of its own, and attempts as frequent as ours.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kReconnectBackoffMin)));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kReconnectBackoffMax)));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(kReconnectBackoffMax)));
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

absl::Duration FromProto(const google::protobuf::Duration& duration, absl::Duration otherwise) {
  const absl::Duration value =
      absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
  return value > absl::ZeroDuration() ? value : otherwise;
}

// What the end of a stream, or a failed registration, asks for.
enum class Recovery { kRetry, kRegister, kLeave };

Recovery RecoveryFrom(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return Recovery::kLeave;
    case absl::StatusCode::kNotFound:
      return Recovery::kRegister;
    default:
      return Recovery::kRetry;
  }
}

}  // namespace

CoordinatorLink::CoordinatorLink(CoordinatorLinkOptions options)
    : options_(std::move(options)),
      clock_(*options_.clock),
      stub_(v1::TopologyService::NewStub(NewChannel(options_.coordinator))),
      lease_stub_(v1::TopologyService::NewStub(NewChannel(options_.coordinator))) {}

CoordinatorLink::~CoordinatorLink() { Stop(); }

absl::Status CoordinatorLink::Start(const WaitLimit& limit) {
  absl::Status status = Register(limit);
  while (!status.ok() && RecoveryFrom(status) == Recovery::kRetry) {
    const absl::Status pause = limit.Pause(register_backoff_.Next());
    if (absl::IsCancelled(pause)) return pause;
    if (!pause.ok()) break;
    status = Register(limit);
  }
  if (!status.ok()) {
    return absl::Status(status.code(), absl::StrCat("cannot register at coordinator ",
                                                    options_.coordinator, ": ", status.message()));
  }
  last_tick_ = clock_.Monotonic();
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

// The call is made in the background, so that this thread can watch for the interrupt meanwhile.
absl::Status CoordinatorLink::CallRegister(const WaitLimit& limit,
                                           v1::RegisterWorkerResponse& response) {
  const absl::Duration timeout = std::min(options_.register_attempt, limit.remaining());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
  context.set_wait_for_ready(true);
  v1::RegisterWorkerRequest request;
  *request.mutable_worker() = options_.worker;
  Interrupt ended;
  grpc::Status answer;
  stub_->async()->RegisterWorker(&context, &request, &response, [&](grpc::Status status) {
    // Under the lock to the end: whoever takes it next may let go of `ended`.
    std::lock_guard<std::mutex> lock(mutex_);
    answer = std::move(status);
    ended.Raise();
  });
  const absl::Status wait = limit.Wait(ended.fd(), POLLIN);
  if (!wait.ok()) {
    context.TryCancel();
    // The call uses what lies on this stack, and ends at once now.
    (void)WaitLimit(absl::InfiniteDuration()).Wait(ended.fd(), POLLIN);
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (absl::IsCancelled(wait)) return wait;
  absl::Status status = FromGrpc(answer);
  const bool silent = !wait.ok() || absl::IsDeadlineExceeded(status);
  return !status.ok() && silent ? absl::UnavailableError("nobody answers") : status;
}

absl::Status CoordinatorLink::Register(const WaitLimit& limit) {
  v1::RegisterWorkerResponse response;
  const absl::Status status = CallRegister(limit, response);
  if (!status.ok()) return status;
  heartbeat_interval_ = FromProto(response.heartbeat_interval(), kHeartbeatInterval);
  lease_duration_ = FromProto(response.lease_duration(), kLeaseDuration);
  options_.on_term(response.term());
  must_register_ = false;
  register_backoff_.Reset();
  LogEvent(LogLevel::kInfo, "registered",
           {{"worker", options_.worker.name()},
            {"incarnation", options_.worker.incarnation()},
            {"coordinator", options_.coordinator},
            {"term", response.term()}});
  return absl::OkStatus();
}

void CoordinatorLink::Run() {
  while (Tick()) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, absl::ToChronoNanoseconds(NextWake()),
                      [&] { return stopping_ || woken_; });
    woken_ = false;
    if (stopping_) return;
  }
}

bool CoordinatorLink::Tick() {
  if (!CheckAwake()) return false;
  if (!Reap(lease_, "lease") || !Reap(commands_, "commands")) return false;
  if (must_register_ && !RegisterAgain()) return false;
  if (!must_register_) {
    if (!lease_.stream && clock_.Monotonic() >= lease_.retry_at) OpenLease();
    if (!commands_.stream && clock_.Monotonic() >= commands_.retry_at) OpenCommands();
  }
  if (lease_.stream && clock_.Monotonic() >= next_heartbeat_) SendHeartbeat();
  UpdateServing();
  return true;
}

bool CoordinatorLink::CheckAwake() {
  const absl::Duration now = clock_.Monotonic();
  const absl::Duration gap = now - last_tick_;
  last_tick_ = now;
  if (gap <= lease_duration_) return true;
  return Leave(absl::DeadlineExceededError(
      absl::StrCat("this worker slept for ", absl::FormatDuration(gap), ", its lease lasts ",
                   absl::FormatDuration(lease_duration_))));
}

// Takes a stream that has ended away and says when to try again.
template <typename Stream>
bool CoordinatorLink::Reap(Reopening<Stream>& reopening, const char* what) {
  if (!reopening.stream) return true;
  const absl::optional<absl::Status> ended = reopening.stream->ended();
  if (!ended) return true;
  std::unique_ptr<Stream> old;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    old = std::move(reopening.stream);
    if constexpr (std::is_same_v<Stream, CommandStream>) {
      for (v1::WorkerReport& report : old->TakeUnsent()) {
        if (!report.has_hello()) outbox_.push_back(std::move(report));
      }
    }
  }
  LogEvent(LogLevel::kWarning, "stream_ended", {{"stream", what}, {"status", *ended}});
  const absl::Duration now = clock_.Monotonic();
  if (now - reopening.opened_at > kReconnectBackoffMax) reopening.backoff.Reset();
  reopening.retry_at = now + reopening.backoff.Next();
  switch (RecoveryFrom(*ended)) {
    case Recovery::kLeave:
      return Leave(*ended);
    case Recovery::kRegister:
      must_register_ = true;
      break;
    case Recovery::kRetry:
      break;
  }
  return true;
}

bool CoordinatorLink::RegisterAgain() {
  if (clock_.Monotonic() < register_at_) return true;
  const absl::Status status = Register(WaitLimit(options_.register_attempt, &stop_));
  last_tick_ = clock_.Monotonic();  // the attempt itself is no sleep
  register_at_ = last_tick_ + register_backoff_.Next();
  if (status.ok() || RecoveryFrom(status) == Recovery::kRetry) return true;
  return Leave(status);
}

void CoordinatorLink::OpenLease() {
  heartbeat_ = 0;
  lease_.opened_at = clock_.Monotonic();
  lease_.stream = std::make_unique<LeaseStream>(
      [this](grpc::ClientContext* context, LeaseStream::Reactor* reactor) {
        lease_stub_->async()->KeepAlive(context, reactor);
      },
      [this](const v1::KeepAliveResponse& reply) { OnLeaseReply(reply); }, [this] { Wake(); });
  next_heartbeat_ = lease_.opened_at;
}

void CoordinatorLink::OpenCommands() {
  commands_.opened_at = clock_.Monotonic();
  auto stream = std::make_unique<CommandStream>(
      [this](grpc::ClientContext* context, CommandStream::Reactor* reactor) {
        stub_->async()->ReceiveCommands(context, reactor);
      },
      [this](const v1::WorkerCommand& command) { options_.on_command(command); },
      [this] { Wake(); });
  v1::WorkerReport report;
  report.mutable_hello()->set_worker(options_.worker.name());
  report.mutable_hello()->set_incarnation(options_.worker.incarnation());
  report.mutable_hello()->set_term(options_.term());
  std::lock_guard<std::mutex> lock(mutex_);
  stream->Send(std::move(report));
  for (v1::WorkerReport& waiting : outbox_) stream->Send(std::move(waiting));
  outbox_.clear();
  commands_.stream = std::move(stream);
}

void CoordinatorLink::SendHeartbeat() {
  v1::KeepAliveRequest request;
  request.set_worker(options_.worker.name());
  request.set_incarnation(options_.worker.incarnation());
  request.set_heartbeat(++heartbeat_);
  request.set_operations_done(options_.operations_done());
  if (options_.transport) {
    if (auto counts = options_.transport()) *request.mutable_transport() = *std::move(counts);
  }
  lease_.stream->Send(std::move(request));
  next_heartbeat_ = clock_.Monotonic() + heartbeat_interval_;
}

void CoordinatorLink::OnLeaseReply(const v1::KeepAliveResponse&) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    last_reply_ = clock_.Monotonic();
  }
  Wake();
}

void CoordinatorLink::UpdateServing() {
  bool acknowledged = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    acknowledged =
        last_reply_ > absl::ZeroDuration() && clock_.Monotonic() - last_reply_ <= lease_duration_;
  }
  if (acknowledged == serving_) return;
  serving_ = acknowledged;
  options_.on_serving(serving_);
}

bool CoordinatorLink::Leave(const absl::Status& status) {
  if (serving_) options_.on_serving(false);
  options_.on_leave(status);
  return false;
}

absl::Duration CoordinatorLink::NextWake() const {
  const absl::Duration now = clock_.Monotonic();
  absl::Duration wake = now + heartbeat_interval_;
  if (lease_.stream) wake = std::min(wake, next_heartbeat_);
  if (must_register_) {
    wake = std::min(wake, register_at_);
  } else {
    if (!lease_.stream) wake = std::min(wake, lease_.retry_at);
    if (!commands_.stream) wake = std::min(wake, commands_.retry_at);
  }
  return std::max(wake - now, absl::ZeroDuration());
}

void CoordinatorLink::Wake() {
  std::lock_guard<std::mutex> lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

void CoordinatorLink::Send(const v1::WorkerReport& report) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_) return;
  if (commands_.stream) {
    commands_.stream->Send(report);
  } else if (outbox_.size() < kMaxWaitingReports || !report.has_progress()) {
    outbox_.push_back(report);
  }
}

void CoordinatorLink::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  stop_.Raise();
  if (thread_.joinable()) thread_.join();
  // Outside the lock: a stream's end waits for its last callback, which may take it.
  std::unique_ptr<CommandStream> commands;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    commands = std::move(commands_.stream);
  }
  commands.reset();
  lease_.stream.reset();
}

}  // namespace perigee
