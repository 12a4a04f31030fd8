#include "tests/device/rank_server.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/host/host_backend.h"
#include "kernels/layout/shard_layout.h"
#include "proto/local/unix_socket.h"
#include "tests/device/checked_rounds.h"
#include "tests/device/rank_memory.h"
#include "tests/device/rank_wire.h"

namespace perigee {
namespace {

using Clock = std::chrono::steady_clock;

constexpr BufferId kBuffer(1);
constexpr size_t kMaxDescriptors = 64;
constexpr size_t kPrivateBytes = size_t{1} << 20;
constexpr std::chrono::seconds kMemoryLimit(5);

double MillisecondsBetween(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(const std::string& name, int32_t device) {
  if (name == "host") return CreateHostBackend();
  CudaBackendOptions options;
  options.device = device;
  options.sms_per_buffer = 8;  // a group of eight and one of one rank fit at once
  return CreateCudaBackend(options);
}

absl::Status TryPrivateMemory(Backend& backend) {
  auto memory = backend.AllocatePrivate(kPrivateBytes);
  if (!memory.ok()) return memory.status();
  std::vector<std::byte> in(kPrivateBytes);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i * 7 + i / 251);
  absl::Status status = backend.CopyIn((*memory)->data(), in);
  if (!status.ok()) return status;
  std::vector<std::byte> out(kPrivateBytes);
  status = backend.CopyOut(absl::MakeSpan(out), (*memory)->data());
  if (!status.ok()) return status;
  return in == out ? absl::OkStatus() : absl::InternalError("copied bytes are others");
}

// A group's life in this process. Kernels end with the data path, before what they use goes.
struct Life {
  std::unique_ptr<CheckedRounds> rounds;
  std::unique_ptr<DataPath> path;
};

absl::StatusOr<Life> MakeLife(Backend& backend, const RankCommand& command,
                              std::vector<std::byte*> shards) {
  Life life;
  auto rounds = CheckedRounds::Create(backend, {command.geometry, command.hidden, command.seed},
                                      command.rank);
  if (!rounds.ok()) return rounds.status();
  life.rounds = *std::move(rounds);
  DataPathOptions options;
  options.geometry = command.geometry;
  options.hidden = command.hidden;
  options.rank = RankId(command.rank);
  options.buffer = kBuffer;
  options.generation = Generation(command.generation);
  options.shards = std::move(shards);
  options.operation_timeout = absl::Milliseconds(command.timeout_ms);
  auto path = backend.CreateDataPath(options);
  if (!path.ok()) return path.status();
  life.path = *std::move(path);
  return life;
}

class RankServer {
 public:
  RankServer(UnixSocket socket, std::unique_ptr<Backend> backend)
      : socket_(std::move(socket)), backend_(std::move(backend)), memory_(*backend_) {}

  void Serve() {
    bool goes_on = Reply(absl::OkStatus());
    while (goes_on) {
      auto message = socket_.Receive(sizeof(RankCommand), kMaxDescriptors, Limit());
      RankCommand command;
      if (!message.ok() || !ParseMessage(message->bytes, command)) return;
      reply_ = RankReply();
      const absl::Status status = Do(command, std::move(message->descriptors));
      goes_on = Reply(status) && command.verb != RankVerb::kQuit;
    }
  }

 private:
  static WaitLimit Limit() { return WaitLimit(absl::Seconds(kChildLimitSeconds)); }

  absl::Status Do(const RankCommand& command, std::vector<FileDescriptor> descriptors) {
    switch (command.verb) {
      case RankVerb::kAllocate:
        return Allocate(command);
      case RankVerb::kMap:
        return Map(command, std::move(descriptors));
      case RankVerb::kWorkAlone:
        return WorkAlone(command);
      case RankVerb::kDropPath:
        return DropPath();
      case RankVerb::kUnmap:
        return Unmap(command.rank);
      case RankVerb::kDropAll:
      case RankVerb::kQuit:
        return DropAll();
      case RankVerb::kReadMemory:
        reply_.free_bytes = backend_->info().free_bytes;
        return absl::OkStatus();
      case RankVerb::kAwaitMemory:
        return AwaitMemory(command.free_bytes);
      case RankVerb::kFill:
        return memory_.FillOwn();
      case RankVerb::kCheckFill:
        return memory_.CheckOwn();
      case RankVerb::kScribble:
        return memory_.ScribbleOnPeers();
      default:
        return Operate(command);
    }
  }

  // What needs a data path.
  absl::Status Operate(const RankCommand& command) {
    if (life_.path == nullptr) return absl::FailedPreconditionError("there is no data path");
    switch (command.verb) {
      case RankVerb::kCheckRounds:
        return CheckRounds(command.count);
      case RankVerb::kStartLoop:
        return StartLoop(command.count);
      case RankVerb::kAwaitLoop:
        return AwaitLoop();
      case RankVerb::kAbort:
        return Abort(command.lost_rank);
      case RankVerb::kDispatch:
        return Dispatch();
      default:
        return absl::UnimplementedError("no such command");
    }
  }

  bool Reply(const absl::Status& status) {
    reply_.code = static_cast<int32_t>(status.code());
    const std::string text(status.message());
    std::strncpy(reply_.text, text.c_str(), sizeof(reply_.text) - 1);
    const bool has_parts = status.ok() && replies_with_descriptors_;
    replies_with_descriptors_ = false;
    return socket_
        .Send(BytesOf(reply_), has_parts ? memory_.descriptors() : std::vector<int>(), Limit())
        .ok();
  }

  absl::Status Allocate(const RankCommand& command) {
    replies_with_descriptors_ = true;
    return memory_.Allocate(ShardLayout::Create(command.geometry, command.hidden).size_bytes,
                            command.extra_bytes);
  }
  absl::Status Map(const RankCommand& command, std::vector<FileDescriptor> descriptors) {
    absl::Status status = DropPath();
    const Clock::time_point start = Clock::now();
    if (status.ok()) status = memory_.Map(command.rank, std::move(descriptors));
    reply_.milliseconds = MillisecondsBetween(start, Clock::now());
    if (!status.ok()) return status;
    absl::StatusOr<Life> life = MakeLife(*backend_, command, memory_.shards());
    if (!life.ok()) return life.status();
    life_ = *std::move(life);
    return absl::OkStatus();
  }
  absl::Status Unmap(int32_t rank) {
    const Clock::time_point start = Clock::now();
    memory_.Unmap(rank);
    reply_.milliseconds = MillisecondsBetween(start, Clock::now());
    return absl::OkStatus();
  }
  absl::Status DropPath() {
    if (loop_.joinable()) return absl::FailedPreconditionError("the loop has not been waited for");
    life_.path.reset();
    life_.rounds.reset();
    return absl::OkStatus();
  }
  absl::Status DropAll() {
    absl::Status status = DropPath();
    if (status.ok()) memory_.DropAll();
    return status;
  }

  absl::Status CheckRounds(int32_t count) {
    absl::Status status;
    const Clock::time_point start = Clock::now();
    for (int32_t i = 0; i < count && status.ok(); ++i) {
      status = life_.rounds->RunChecked(*life_.path);
    }
    reply_.milliseconds = MillisecondsBetween(start, Clock::now());
    TakeRecord();
    return status;
  }

  absl::Status StartLoop(int32_t ahead) {
    std::promise<absl::Status> first;
    std::future<absl::Status> first_status = first.get_future();
    loop_ = std::thread([this, ahead, first = std::move(first)]() mutable {
      loop_status_ = life_.rounds->Run(*life_.path, ahead);
      first.set_value(loop_status_);
      while (loop_status_.ok()) loop_status_ = life_.rounds->Run(*life_.path, ahead);
      loop_end_ = Clock::now();
    });
    return first_status.get();
  }
  absl::Status AwaitLoop() {
    if (!loop_.joinable()) return absl::FailedPreconditionError("no loop was started");
    loop_.join();
    TakeRecord();
    return loop_status_;
  }
  absl::Status Abort(int32_t lost_rank) {
    const Clock::time_point start = Clock::now();
    life_.path->Abort(lost_rank, "its process was ended");
    const absl::Status status = AwaitLoop();
    reply_.milliseconds = MillisecondsBetween(start, loop_end_);
    return status;
  }

  absl::Status Dispatch() {
    const Clock::time_point start = Clock::now();
    const absl::Status status = life_.rounds->Dispatch(*life_.path);
    reply_.milliseconds = MillisecondsBetween(start, Clock::now());
    TakeRecord();
    return status;
  }

  absl::Status WorkAlone(RankCommand command) {
    absl::Status status = TryPrivateMemory(*backend_);
    if (!status.ok()) return status;
    const ShardLayout layout = ShardLayout::Create(command.geometry, command.hidden);
    auto shard = backend_->AllocateShared(layout.size_bytes, PeerAccess::kReadWrite);
    if (!shard.ok()) return shard.status();
    command.rank = 0;
    absl::StatusOr<Life> life = MakeLife(*backend_, command, {(*shard)->data()});
    return life.ok() ? life->rounds->RunChecked(*life->path) : life.status();
  }

  // The driver gives memory back some time after whoever had it is gone; each look takes a call of
  // the driver, so this does not spin hard.
  absl::Status AwaitMemory(uint64_t wanted_bytes) {
    const Clock::time_point start = Clock::now();
    while (true) {
      reply_.free_bytes = backend_->info().free_bytes;
      const Clock::time_point now = Clock::now();
      reply_.milliseconds = MillisecondsBetween(start, now);
      if (reply_.free_bytes >= wanted_bytes) return absl::OkStatus();
      if (now - start > kMemoryLimit) {
        return absl::DeadlineExceededError(
            absl::StrCat(reply_.free_bytes, " bytes are free, expected ", wanted_bytes));
      }
    }
  }

  void TakeRecord() {
    const absl::optional<ErrorRecord> record = life_.path->last_error();
    reply_.has_record = record.has_value();
    if (record) reply_.record = *record;
  }

  UnixSocket socket_;
  std::unique_ptr<Backend> backend_;
  RankMemory memory_;
  Life life_;
  RankReply reply_;
  bool replies_with_descriptors_ = false;
  std::thread loop_;
  absl::Status loop_status_;  // written by the loop, read when it has ended
  Clock::time_point loop_end_;
};

}  // namespace

void ServeRank(const std::string& socket_path, const std::string& backend_name, int32_t device) {
  alarm(kChildLimitSeconds);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Before the device is used: the test's process waits for the connection, and only for it.
  auto socket = UnixSocket::Connect(socket_path, WaitLimit(absl::Seconds(kChildLimitSeconds)));
  if (!socket.ok()) {
    std::fprintf(stderr, "rank: %s\n", socket.status().ToString().c_str());
    _exit(2);
  }
  auto backend = CreateBackend(backend_name, device);
  if (!backend.ok()) {
    std::fprintf(stderr, "rank: %s\n", backend.status().ToString().c_str());
    _exit(3);
  }
  // Never destroyed: a loop that still runs ends with the process.
  (new RankServer(*std::move(socket), *std::move(backend)))->Serve();
  _exit(0);
}

}  // namespace perigee
