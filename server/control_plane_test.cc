// The coordinator's state with all its threads, without gRPC, so that the thread sanitizer sees
// every access.
#include "server/control_plane.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/random.h"
#include "server/testing/awaited.h"
#include "server/testing/fake_worker.h"
#include "server/testing/memory_store.h"
#include "tests/testing/fake_clock.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTenant = "tenants/default";
constexpr std::chrono::seconds kPatience(20);

using Answer = Awaited<CallResult>;

class ProgramRecorder final : public ProgramSink {
 public:
  void Progress(const v1::ExecuteProgramResponse& message) override {
    std::lock_guard lock(mutex_);
    complete_ |= message.complete();
  }
  void Finish(const CallResult& result) override { answer_.done()(result); }
  CallResult Get() { return answer_.Get(); }
  bool complete() {
    std::lock_guard lock(mutex_);
    return complete_;
  }

 private:
  std::mutex mutex_;
  bool complete_ = false;
  Answer answer_;
};

class GroupRecorder final : public GroupSink {
 public:
  void Update(const v1::Group& group) override {
    {
      std::lock_guard lock(mutex_);
      last_ = group;
    }
    changed_.notify_all();
  }
  void End(const absl::Status&) override {}
  bool Await(v1::Group::State state, uint64_t after_generation) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] {
      return last_.state() == state && last_.generation() > after_generation;
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  v1::Group last_;
};

class ControlPlaneTest : public ::testing::Test {
 protected:
  ControlPlaneTest() {
    control_ = std::make_unique<ControlPlane>(ControlPlaneOptions(), store_, clock_, RandomBytes);
  }
  ~ControlPlaneTest() override {
    for (auto& worker : workers_) worker->Stop();
    control_->Shutdown();
  }

  void AddWorkers(int count) {
    for (int i = 0; i < count; ++i) {
      workers_.push_back(std::make_unique<FakeWorker>(*control_, i));
    }
  }
  CallResult CreateGroup(const std::string& id, int32_t ranks) {
    Answer answer;
    control_->CreateGroup({kTenant, id, ranks, "host", {}}, answer.done());
    return answer.Get();
  }
  CallResult CreateBuffer(const std::string& group) {
    NewBuffer buffer{group, "b", {}, 0};
    buffer.shape.set_tokens(4);
    buffer.shape.set_hidden(8);
    buffer.shape.set_topk(2);
    buffer.shape.set_experts(6);
    Answer answer;
    control_->CreateBuffer(buffer, answer.done());
    return answer.Get();
  }
  std::shared_ptr<ProgramRecorder> Execute(const std::string& group) {
    v1::ExecuteProgramRequest request;
    request.set_buffer(group + "/buffers/b");
    request.mutable_program()->add_operations()->mutable_barrier();
    auto recorder = std::make_shared<ProgramRecorder>();
    control_->ExecuteProgram(request, recorder);
    return recorder;
  }
  CallResult Drain(const std::string& group, bool remove) {
    Answer answer;
    control_->DrainGroup(group, remove, answer.done());
    return answer.Get();
  }

  // Given a program that a worker has got and not answered, when its command stream is replaced,
  // then the program is not sent a second time: it fails, naming the rank, and the group forms
  // again.
  void LoseAProgram(const std::function<void(FakeWorker&)>& replace_stream) {
    AddWorkers(3);
    ASSERT_TRUE(CreateGroup("g", 3).status.ok());
    ASSERT_TRUE(CreateBuffer(group_).status.ok());
    auto watcher = std::make_shared<GroupRecorder>();
    const uint64_t generation = control_->GetGroup(group_)->generation();
    ASSERT_TRUE(control_->WatchGroup(group_, watcher).ok());
    for (auto& worker : workers_) worker->HoldPrograms();
    const auto program = Execute(group_);
    for (auto& worker : workers_) {
      ASSERT_TRUE(worker->AwaitCommands(v1::WorkerCommand::kExecuteProgram, 1));
    }

    replace_stream(*workers_[1]);

    const CallResult result = program->Get();
    EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(std::string(result.status.message()),
              "rank 1 (workers/w1): its command stream broke before it answered execute_program");
    ASSERT_TRUE(result.error.has_value());
    EXPECT_EQ(result.error->ranks(1).reason(), "COMMAND_LOST");
    EXPECT_EQ(result.error->ranks(0).reason(), "GENERATION_ABORTED");
    EXPECT_TRUE(watcher->Await(v1::Group::ACTIVE, generation));
    EXPECT_EQ(workers_[1]->CountCommands(v1::WorkerCommand::kExecuteProgram), 1u);
  }

  FakeClock clock_;
  MemoryStore store_;
  std::unique_ptr<ControlPlane> control_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  const std::string group_ = "tenants/default/groups/g";
};

TEST_F(ControlPlaneTest, AGroupLivesFromCreationToItsEnd) {
  AddWorkers(3);
  const CallResult created = CreateGroup("g", 3);
  ASSERT_TRUE(created.status.ok()) << created.status;
  EXPECT_EQ(std::get<v1::Group>(created.response).state(), v1::Group::ACTIVE);
  const CallResult buffer = CreateBuffer(group_);
  ASSERT_TRUE(buffer.status.ok()) << buffer.status;
  EXPECT_EQ(std::get<v1::Buffer>(buffer.response).state(), v1::Buffer::ACTIVE);
  EXPECT_EQ(std::get<v1::Buffer>(buffer.response).shape().slots(), 2);

  for (int i = 0; i < 3; ++i) {
    const auto program = Execute(group_);
    EXPECT_TRUE(program->Get().status.ok());
    EXPECT_TRUE(program->complete());
  }
  EXPECT_TRUE(Drain(group_, true).status.ok());
  EXPECT_EQ(control_->GetGroup(group_).status().code(), absl::StatusCode::kNotFound);
  for (const v1::Worker& worker : control_->ListWorkers()) {
    EXPECT_EQ(worker.state(), v1::Worker::READY) << worker.name();
  }
}

TEST_F(ControlPlaneTest, TooFewWorkersSaysHowManyAreThere) {
  AddWorkers(2);
  const CallResult created = CreateGroup("g", 3);
  EXPECT_EQ(created.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(created.status.message()), HasSubstr("3"));
  EXPECT_THAT(std::string(created.status.message()), HasSubstr("2"));
}

TEST_F(ControlPlaneTest, AnotherAbiIsRefusedNamingBoth) {
  v1::Worker worker = FakeWorker::Describe(0, 1);
  worker.set_data_path_abi(worker.data_path_abi() + 41);
  const absl::Status status = control_->RegisterWorker(worker).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(worker.data_path_abi())));
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(worker.data_path_abi() - 41)));
}

// Given a group of three with a program under way, when a worker's process is killed, then the call
// ends with every rank's word, and a new process of that name makes the group ACTIVE again later.
TEST_F(ControlPlaneTest, ALostWorkerFencesAndAReplacementFormsAgain) {
  AddWorkers(3);
  ASSERT_TRUE(CreateGroup("g", 3).status.ok());
  ASSERT_TRUE(CreateBuffer(group_).status.ok());
  const uint64_t generation = control_->GetGroup(group_)->generation();
  auto watcher = std::make_shared<GroupRecorder>();
  ASSERT_TRUE(control_->WatchGroup(group_, watcher).ok());
  for (auto& worker : workers_) worker->HoldPrograms();
  const auto program = Execute(group_);
  for (auto& worker : workers_) {
    ASSERT_TRUE(worker->AwaitCommands(v1::WorkerCommand::kExecuteProgram, 1));
  }

  workers_[1]->Kill();
  clock_.Advance(kReconnectGrace + absl::Milliseconds(1));
  control_->Poke();
  const CallResult result = program->Get();
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.status.message()), HasSubstr("rank 1 (workers/w1)"));
  ASSERT_TRUE(result.error.has_value());
  ASSERT_EQ(result.error->ranks_size(), 3);
  EXPECT_EQ(result.error->ranks(1).reason(), "RANK_LOST");
  for (const int survivor : {0, 2}) {
    EXPECT_EQ(result.error->ranks(survivor).reason(), "GENERATION_ABORTED");
    EXPECT_THAT(result.error->ranks(survivor).message(), HasSubstr("rank 1 (workers/w1)"));
  }
  EXPECT_FALSE(program->complete());

  FakeWorker replacement(*control_, 1, 2);
  EXPECT_TRUE(watcher->Await(v1::Group::ACTIVE, generation));
  EXPECT_EQ(control_->GetBuffer(group_ + "/buffers/b")->state(), v1::Buffer::ACTIVE);
  EXPECT_TRUE(replacement.AwaitCommands(v1::WorkerCommand::kConnectBuffer, 1));
  const auto generations = control_->ListGenerations(group_);
  ASSERT_TRUE(generations.ok());
  ASSERT_EQ(generations->size(), 2u);
  EXPECT_EQ(generations->back().state(), v1::GenerationInfo::ENDED);
  EXPECT_THAT(generations->back().end_reason(), HasSubstr("workers/w1"));
  replacement.Stop();
}

TEST_F(ControlPlaneTest, ACommandThatABrokenStreamTookIsLostAndNotSentAgain) {
  LoseAProgram([](FakeWorker& worker) {
    worker.BreakCommands();
    worker.ReopenCommands();
  });
}

// The worker may know before the coordinator does.
TEST_F(ControlPlaneTest, ACommandThatAReplacedStreamTookIsLostAndNotSentAgain) {
  LoseAProgram([](FakeWorker& worker) { worker.ReopenCommands(); });
}

// Given a worker whose stream takes nothing, when it breaks and opens again, then what waited is
// sent, once, and the program ends as if nothing had been.
TEST_F(ControlPlaneTest, ACommandThatNoStreamTookIsSentOnTheNext) {
  AddWorkers(3);
  ASSERT_TRUE(CreateGroup("g", 3).status.ok());
  ASSERT_TRUE(CreateBuffer(group_).status.ok());
  workers_[1]->StallDelivery();
  const auto program = Execute(group_);
  ASSERT_TRUE(workers_[0]->AwaitCommands(v1::WorkerCommand::kExecuteProgram, 1));
  EXPECT_EQ(workers_[1]->CountCommands(v1::WorkerCommand::kExecuteProgram), 0u);

  workers_[1]->BreakCommands();
  workers_[1]->ReopenCommands();

  const CallResult result = program->Get();
  EXPECT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(workers_[1]->CountCommands(v1::WorkerCommand::kExecuteProgram), 1u);
}

// A command that is due while no stream is open has not been taken by one.
TEST_F(ControlPlaneTest, ACommandBetweenTwoStreamsIsSentOnTheNext) {
  AddWorkers(2);
  ASSERT_TRUE(CreateGroup("g", 2).status.ok());
  ASSERT_TRUE(CreateBuffer(group_).status.ok());
  workers_[1]->BreakCommands();
  const auto program = Execute(group_);
  workers_[1]->ReopenCommands();
  EXPECT_TRUE(program->Get().status.ok());
  EXPECT_EQ(workers_[1]->CountCommands(v1::WorkerCommand::kExecuteProgram), 1u);
}

TEST_F(ControlPlaneTest, ShutdownAnswersWhatWaits) {
  AddWorkers(2);
  ASSERT_TRUE(CreateGroup("g", 2).status.ok());
  for (auto& worker : workers_) worker->HoldPrograms();
  ASSERT_TRUE(CreateBuffer(group_).status.ok());
  const auto program = Execute(group_);
  control_->Shutdown();
  EXPECT_EQ(program->Get().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CreateGroup("h", 1).status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ControlPlaneTest, ManyCallersAtOnce) {
  AddWorkers(4);
  std::vector<std::thread> callers;
  std::atomic<int> created = 0;
  for (int caller = 0; caller < 2; ++caller) {
    callers.emplace_back([this, caller, &created] {
      for (int i = 0; i < 20; ++i) {
        const std::string id = absl::StrCat("c", caller, "-", i);
        // Both fit side by side: 2 + 2 of 4 workers.
        const CallResult result = CreateGroup(id, 2);
        EXPECT_TRUE(result.status.ok()) << result.status;
        created += result.status.ok() ? 1 : 0;
        EXPECT_TRUE(Drain(absl::StrCat(kTenant, "/groups/", id), true).status.ok());
      }
    });
  }
  callers.emplace_back([this] {
    for (uint64_t i = 1; i <= 200; ++i) {
      for (const auto& worker : workers_) EXPECT_TRUE(worker->Heartbeat(i).ok());
      (void)control_->ListWorkers();
      (void)control_->ListGroups(kTenant);
    }
  });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(created, 40);
}

}  // namespace
}  // namespace perigee
