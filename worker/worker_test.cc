// Whole workers over gRPC with a coordinator that is faked: the life of a worker, and of a group of
// three on the host backend.
#include "worker/worker.h"

#include <sys/stat.h>

#include <condition_variable>
#include <mutex>

#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "kernels/layout/abi.h"
#include "proto/v1/health.grpc.pb.h"
#include "worker/testing/session_group.h"
#include "worker/testing/worker_group.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using Counts = FakeCoordinator::Counts;
using Health = grpc::health::v1::HealthCheckResponse;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class WorkerTest : public ::testing::Test {
 protected:
  absl::Status StartFails(const std::function<void(WorkerOptions&)>& change) {
    WorkerOptions options = none_.Options(0);
    options.register_timeout = absl::Milliseconds(200);
    change(options);
    return Worker::Start(std::move(options)).status();
  }
  std::unique_ptr<Worker> Start(WorkerOptions options) {
    absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(std::move(options));
    EXPECT_TRUE(worker.ok()) << worker.status();
    return *std::move(worker);
  }
  // Waits for this answer of the worker's health service.
  void AwaitHealth(const Worker& worker, Health::ServingStatus wanted) {
    auto stub = grpc::health::v1::Health::NewStub(
        grpc::CreateChannel(worker.address(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    grpc::health::v1::HealthCheckRequest request;
    request.set_service("perigee.v1.WorkerService");
    auto reader = stub->Watch(&context, request);
    Health response;
    do {
      ASSERT_TRUE(reader->Read(&response)) << "health never became " << wanted;
    } while (response.status() != wanted);
    context.TryCancel();
    (void)reader->Finish();
  }

  WorkerGroup none_{0};
};

TEST_F(WorkerTest, RegistersAsItIs) {
  const std::unique_ptr<Worker> worker = Start(none_.Options(0));
  const v1::Worker registered = none_.coordinator().registered("workers/w0");
  EXPECT_EQ(registered.incarnation(), worker->incarnation());
  EXPECT_EQ(registered.host(), "hosts/here");
  EXPECT_EQ(registered.backend(), "host");
  EXPECT_EQ(registered.address(), worker->address());
  EXPECT_EQ(registered.socket_path(), worker->socket_path());
  EXPECT_EQ(registered.data_path_abi(), kDataPathAbi);
  EXPECT_EQ(registered.pid(), getpid());
  EXPECT_GT(registered.memory_bytes(), 0u);
  EXPECT_THAT(worker->socket_path(), HasSubstr("/w0-" + worker->incarnation() + ".sock"));
}

TEST_F(WorkerTest, WhatIsWrongAtTheStartIsNamed) {
  absl::Status status = StartFails([](WorkerOptions& options) { options.name = "W 0"; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("worker name"));
  status = StartFails([](WorkerOptions& options) { options.host = ""; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  status = StartFails([](WorkerOptions& options) { options.address = "nonsense"; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  status = StartFails([](WorkerOptions& options) { options.threads = 0; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  status =
      StartFails([&](WorkerOptions& options) { options.address = none_.coordinator().address(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr(none_.coordinator().address()));
  const std::string gone = FakeCoordinator().address();
  status = StartFails([&](WorkerOptions& options) { options.coordinator = gone; });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr(gone));
  none_.coordinator().SetRegistration(absl::FailedPreconditionError("data-path ABI 1, expected 2"));
  status = StartFails([](WorkerOptions&) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("data-path ABI 1, expected 2"));
  EXPECT_TRUE(none_.directory().empty()) << "a socket was left behind";
  ASSERT_EQ(chmod(none_.directory().path().c_str(), 0755), 0);
  status = StartFails([](WorkerOptions&) {});
  EXPECT_THAT(Message(status), HasSubstr("0755"));
}

TEST_F(WorkerTest, IsHealthyWhileItsLeaseIsAcknowledged) {
  none_.coordinator().SetLease(absl::Milliseconds(10), absl::Milliseconds(500));
  const std::unique_ptr<Worker> worker = Start(none_.Options(0));
  AwaitHealth(*worker, Health::SERVING);
  none_.coordinator().AnswerHeartbeats(false);
  AwaitHealth(*worker, Health::NOT_SERVING);
}

TEST_F(WorkerTest, LeavesInGoodOrder) {
  const std::unique_ptr<Worker> worker = Start(none_.Options(0));
  ASSERT_TRUE(
      none_.coordinator().Await("workers/w0", [](const Counts& c) { return c.open_streams == 2; }));
  EXPECT_FALSE(none_.directory().empty());
  worker->Shutdown();
  EXPECT_TRUE(none_.directory().empty());
  EXPECT_TRUE(
      none_.coordinator().Await("workers/w0", [](const Counts& c) { return c.open_streams == 0; }));
  worker->Shutdown();
}

TEST_F(WorkerTest, ANewerIncarnationMakesItLeave) {
  std::mutex mutex;
  std::condition_variable changed;
  absl::Status left;
  WorkerOptions options = none_.Options(0);
  options.on_leave = [&](const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex);
    left = status;
    changed.notify_all();
  };
  const std::unique_ptr<Worker> worker = Start(std::move(options));
  none_.coordinator().EndLease("workers/w0", absl::AbortedError("replaced"));
  std::unique_lock<std::mutex> lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return !left.ok(); }));
  EXPECT_EQ(left.code(), absl::StatusCode::kAborted);
}

class WorkerGroupTest : public ::testing::Test {
 protected:
  void SetUp() override { group_.Form(7, layer_.shape()); }

  void ExpectAllWell(const std::vector<v1::CommandResult>& results) {
    for (const v1::CommandResult& result : results) {
      EXPECT_EQ(result.status().code(), 0) << result.status().message();
    }
  }
  void ExpectLayerIsRight() {
    for (int32_t rank = 0; rank < 2; ++rank) {
      const WorkerGroup::ReadResult output = group_.Read(rank, NamedTarget("output"));
      ASSERT_TRUE(output.status.ok()) << output.status.error_message();
      EXPECT_LE(RelativeError(BFloat16Values(output.bytes), layer_.ExpectedOutput(rank)),
                kSmallLayerTolerance);
      EXPECT_EQ(group_.Read(rank, NamedTarget("gathered")).bytes, layer_.ExpectedGathered(rank));
    }
  }

  const SmallLayer layer_{3, 20231};
  WorkerGroup group_{3};
};

TEST_F(WorkerGroupTest, AWholeLayerComesOutRight) {
  group_.Load(layer_);
  const std::vector<v1::CommandResult> results =
      group_.Execute(std::string(kLayerProgram) + " iterations: 3");
  ExpectAllWell(results);
  for (int32_t rank = 0; rank < 3; ++rank) {
    const v1::ProgramProgress& progress = results[rank].progress();
    EXPECT_EQ(progress.rank(), rank);
    EXPECT_EQ(progress.group(), kTestGroup);
    EXPECT_EQ(progress.iterations_done(), 3);
    EXPECT_EQ(progress.timings(3).count(), 3);
    EXPECT_EQ(results[rank].status().worker(), WorkerGroup::Name(rank));
  }
  ExpectLayerIsRight();
}

TEST_F(WorkerGroupTest, ARankWithoutItsInputIsNamedByAllAndTheNextProgramRuns) {
  group_.Load(layer_);
  for (const int32_t rank : {0, 1}) {
    LayerTensor other = layer_.Inputs(rank)[0];
    other.target.set_tensor("other");
    ASSERT_TRUE(group_.Write(rank, other).ok());
  }
  const std::vector<v1::CommandResult> results = group_.Execute(
      R"(operations { dispatch { hidden: "other" topk_experts: "topk" plan: "q" } })");
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(results[rank].status().reason(), rank == 2 ? "STALE_OBJECT" : "DECLINED");
    EXPECT_THAT(results[rank].status().message(),
                HasSubstr(rank == 2 ? "'other'" : "rank 2 (workers/w2)"));
  }
  ExpectAllWell(group_.Execute(kLayerProgram));
  ExpectLayerIsRight();
}

TEST_F(WorkerGroupTest, ACancelStopsAllRanksTogether) {
  const std::vector<uint64_t> running =
      group_.Send("operations { barrier {} } iterations: 1000000000", {0, 1, 2});
  v1::WorkerCommand cancel = group_.Command();
  cancel.mutable_cancel_program()->set_program_id(group_.program_id());
  EXPECT_EQ(group_.coordinator().Do(WorkerGroup::Name(1), cancel).status().code(), 0);
  for (const v1::CommandResult& result : group_.Await(running)) {
    EXPECT_EQ(result.status().reason(), "CANCELLED");
  }
}

// Given a program that waits for a lost rank, when the generation is aborted, then every survivor
// says who was lost, and a new generation with a replacement works once it is loaded again.
TEST_F(WorkerGroupTest, ALostRankIsNamedAndReplaced) {
  group_.Load(layer_);
  const std::vector<uint64_t> waiting = group_.Send("operations { barrier {} }", {0, 1});
  group_.Replace(2);
  v1::WorkerCommand abort = group_.Command();
  abort.mutable_abort_generation()->add_lost_ranks(2);
  abort.mutable_abort_generation()->set_reason("its stream broke");
  std::vector<uint64_t> aborts;
  for (const int32_t rank : {0, 1}) {
    aborts.push_back(group_.coordinator().Send(WorkerGroup::Name(rank), abort));
  }
  for (const v1::CommandResult& result : group_.Await(waiting)) {
    EXPECT_EQ(result.status().code(), static_cast<int>(absl::StatusCode::kUnavailable));
    EXPECT_EQ(result.status().reason(), "GENERATION_ABORTED");
    // "is lost" from a barrier that was waiting, "was lost" where the abort came before it began.
    EXPECT_THAT(result.status().message(), HasSubstr("rank 2 (workers/w2) "));
    EXPECT_THAT(result.status().message(), HasSubstr("s lost: its stream broke"));
  }
  for (const v1::CommandResult& result : group_.Await(aborts)) {
    EXPECT_EQ(result.status().code(), 0) << result.status().message();
  }
  group_.Form(8, layer_.shape());
  for (const v1::CommandResult& result : group_.Execute(kLayerProgram)) {
    EXPECT_NE(result.status().code(), 0) << "inputs of generation 7 were used";
  }
  group_.Load(layer_);
  ExpectAllWell(group_.Execute(kLayerProgram));
  ExpectLayerIsRight();
}

TEST_F(WorkerGroupTest, ABrokenCommandStreamDoesNotTouchTheSession) {
  group_.Load(layer_);
  for (int32_t rank = 0; rank < 3; ++rank) {
    group_.coordinator().BreakStreams(WorkerGroup::Name(rank));
    ASSERT_TRUE(group_.coordinator().Await(WorkerGroup::Name(rank),
                                           [](const Counts& c) { return c.command_streams >= 2; }));
  }
  ExpectAllWell(group_.Execute(kLayerProgram));
  ExpectLayerIsRight();
}

TEST_F(WorkerGroupTest, AWorkerThatShutsDownWhileItWaitsDoesSoAtOnce) {
  group_.Send("operations { barrier {} }", {0, 1});
  group_.Replace(0);
  EXPECT_TRUE(group_.coordinator().Await(WorkerGroup::Name(0),
                                         [](const Counts& c) { return c.registrations == 2; }));
}

}  // namespace
}  // namespace perigee
