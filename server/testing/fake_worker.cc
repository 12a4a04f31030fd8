#include "server/testing/fake_worker.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/layout/abi.h"
#include "proto/support/random.h"

namespace perigee {

class FakeWorker::Sink final : public CommandSink {
 public:
  explicit Sink(FakeWorker* worker) : worker_(worker) {}
  void Send(const v1::WorkerCommand& command) override { worker_->Take(command); }
  std::vector<v1::WorkerCommand> TakeUnsent() override { return worker_->TakeUnsent(); }
  void End(const absl::Status&) override {}

 private:
  FakeWorker* const worker_;
};

v1::Worker FakeWorker::Describe(int index, int life) {
  v1::Worker worker;
  worker.set_name(absl::StrCat("workers/w", index));
  worker.set_incarnation(Hex64(static_cast<uint64_t>(index) * 1000 + life));
  worker.set_host("hosts/here");
  worker.set_backend("host");
  worker.set_address(absl::StrCat("127.0.0.1:", 10000 + index));
  worker.set_socket_path(absl::StrCat("/run/w", index, ".sock"));
  worker.set_data_path_abi(kDataPathAbi);
  worker.set_version("test");
  worker.set_pid(100 + index);
  return worker;
}

FakeWorker::FakeWorker(ControlPlane& control, int index, int life)
    : control_(control), worker_(Describe(index, life)), sink_(std::make_shared<Sink>(this)) {
  const auto registered = control_.RegisterWorker(worker_);
  EXPECT_TRUE(registered.ok()) << registered.status();
  const auto lease = control_.OpenLease(worker_.name(), worker_.incarnation(), sink_);
  EXPECT_TRUE(lease.ok()) << lease.status();
  if (lease.ok()) lease_ = *lease;
  OpenCommands();
  thread_ = std::thread([this] { Run(); });
}

FakeWorker::~FakeWorker() { Stop(); }

void FakeWorker::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FakeWorker::HoldPrograms() {
  std::lock_guard lock(mutex_);
  hold_programs_ = true;
}

void FakeWorker::Kill() {
  Stop();
  control_.CloseStream(lease_, false);
  BreakCommands();
}

void FakeWorker::StallDelivery() {
  std::lock_guard lock(mutex_);
  stalled_ = true;
}

// The control plane calls the sink with its own mutex held: ours is never held around a call to it.
void FakeWorker::BreakCommands() {
  StreamId stream = 0;
  {
    std::lock_guard lock(mutex_);
    stream = std::exchange(commands_, 0);
  }
  control_.CloseStream(stream, false);
}

void FakeWorker::ReopenCommands() {
  {
    std::lock_guard lock(mutex_);
    commands_ = 0;
  }
  OpenCommands();
}

void FakeWorker::OpenCommands() {
  v1::WorkerHello hello;
  hello.set_worker(worker_.name());
  hello.set_incarnation(worker_.incarnation());
  const auto commands = control_.OpenCommands(hello, sink_);
  EXPECT_TRUE(commands.ok()) << commands.status();
  {
    std::lock_guard lock(mutex_);
    if (commands.ok()) commands_ = *commands;
  }
  changed_.notify_all();
}

bool FakeWorker::AwaitCommands(v1::WorkerCommand::CommandCase kind, size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(20),
                           [&] { return CountSeen(kind) >= count; });
}

size_t FakeWorker::CountCommands(v1::WorkerCommand::CommandCase kind) const {
  std::lock_guard lock(mutex_);
  return CountSeen(kind);
}

size_t FakeWorker::CountSeen(v1::WorkerCommand::CommandCase kind) const {
  return static_cast<size_t>(std::count_if(seen_.begin(), seen_.end(), [kind](const auto& command) {
    return command.command_case() == kind;
  }));
}

absl::Status FakeWorker::Heartbeat(uint64_t number) const {
  v1::KeepAliveRequest heartbeat;
  heartbeat.set_heartbeat(number);
  return control_.TakeHeartbeat(lease_, heartbeat).status();
}

void FakeWorker::Take(const v1::WorkerCommand& command) {
  {
    std::lock_guard lock(mutex_);
    if (stalled_) {
      undelivered_.push_back(command);
      return;
    }
    waiting_.push_back(command);
    seen_.push_back(command);
  }
  changed_.notify_all();
}

std::vector<v1::WorkerCommand> FakeWorker::TakeUnsent() {
  std::lock_guard lock(mutex_);
  stalled_ = false;  // that was the old stream's
  return std::exchange(undelivered_, {});
}

void FakeWorker::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    if (stopped_) return;
    const v1::WorkerCommand command = std::move(waiting_.front());
    waiting_.pop_front();
    if (command.has_execute_program() && hold_programs_) {
      held_.push_back(command);
      continue;
    }
    std::vector<v1::WorkerCommand> ended;
    if (command.has_abort_generation()) ended = std::exchange(held_, {});
    lock.unlock();
    for (const v1::WorkerCommand& program : ended) {
      Answer(program, absl::UnavailableError(command.abort_generation().reason()));
    }
    Answer(command, absl::OkStatus());
    lock.lock();
  }
}

// Serving a client has no end here: its ticket is good, and nobody uses it.
v1::WorkerReport FakeWorker::Admission(const v1::WorkerCommand& command) {
  v1::WorkerReport report;
  v1::ClientReport& client = *report.mutable_client();
  client.set_attachment_id(command.serve_client().attachment_id());
  client.set_group(command.group());
  client.set_state(v1::ClientReport::ADMITTED);
  client.set_socket_path("/run/attach.sock");
  return report;
}

void FakeWorker::Answer(const v1::WorkerCommand& command, const absl::Status& status) {
  StreamId stream = 0;
  {
    // As a worker keeps its reports for the next stream.
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || commands_ != 0; });
    stream = commands_;
  }
  control_.TakeReport(stream,
                      command.has_serve_client() ? Admission(command) : AnswerTo(command, status));
}

v1::WorkerReport FakeWorker::AnswerTo(const v1::WorkerCommand& command,
                                      const absl::Status& status) {
  v1::WorkerReport report;
  v1::CommandResult& result = *report.mutable_result();
  result.set_command_id(command.command_id());
  result.mutable_status()->set_code(static_cast<int>(status.code()));
  result.mutable_status()->set_message(std::string(status.message()));
  if (!status.ok()) result.mutable_status()->set_reason("GENERATION_ABORTED");
  if (command.has_execute_program()) {
    result.mutable_progress()->set_program_id(command.execute_program().program_id());
    result.mutable_progress()->set_last_sequence(command.execute_program().first_sequence());
  }
  return report;
}

}  // namespace perigee
