// TopologyService through gRPC, as a worker speaks it.
#include "server/rpc/worker_streams.h"

#include <future>

#include "gmock/gmock.h"
#include "server/testing/fake_worker.h"
#include "server/testing/rpc_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

class WorkerStreamsTest : public RpcFixture {
 protected:
  WorkerStreamsTest() : RpcFixture(absl::Seconds(20)) {}

  absl::Status Register(const v1::Worker& worker) {
    v1::RegisterWorkerRequest request;
    *request.mutable_worker() = worker;
    return Call(*topology_, &v1::TopologyService::Stub::RegisterWorker, request).status();
  }
  // How a command stream ends that sends `report` first.
  absl::Status OpenCommands(const v1::WorkerReport& report) {
    grpc::ClientContext context;
    SetPatience(context);
    const auto stream = topology_->ReceiveCommands(&context);
    stream->Write(report);
    v1::WorkerCommand command;
    EXPECT_FALSE(stream->Read(&command));
    return FromGrpc(stream->Finish());
  }
  static v1::WorkerReport Hello(const v1::Worker& worker) {
    v1::WorkerReport report;
    report.mutable_hello()->set_worker(worker.name());
    report.mutable_hello()->set_incarnation(worker.incarnation());
    return report;
  }
};

TEST_F(WorkerStreamsTest, AWorkerOfAnotherDataPathIsRefusedNamingBoth) {
  v1::Worker worker = FakeWorker::Describe(0, 1);
  const uint32_t ours = worker.data_path_abi();
  worker.set_data_path_abi(ours + 41);
  const absl::Status status = Register(worker);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(ours + 41)));
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(ours)));
  v1::GetWorkerRequest get;
  get.set_name(worker.name());
  EXPECT_TRUE(
      absl::IsNotFound(Call(*topology_, &v1::TopologyService::Stub::GetWorker, get).status()));
}

TEST_F(WorkerStreamsTest, AStreamMustComeFromTheIncarnationThatIsRegistered) {
  const v1::Worker old = FakeWorker::Describe(0, 1);
  EXPECT_TRUE(absl::IsNotFound(OpenCommands(Hello(old)))) << "register first";
  ASSERT_TRUE(Register(old).ok());
  ASSERT_TRUE(Register(FakeWorker::Describe(0, 2)).ok());
  EXPECT_TRUE(absl::IsAborted(OpenCommands(Hello(old)))) << "it was replaced";
  EXPECT_TRUE(absl::IsAborted(Register(old)));
}

TEST_F(WorkerStreamsTest, TheFirstReportMustBeHello) {
  v1::WorkerReport report;
  report.mutable_result()->set_command_id(1);
  EXPECT_TRUE(absl::IsInvalidArgument(OpenCommands(report)));
}

TEST_F(WorkerStreamsTest, ACommandIsNotSentTwiceWhenItsStreamBreaks) {
  AddWorkers(2);
  ASSERT_TRUE(CreateGroup(NewGroupRequest("g", 2)).ok());
  const std::string group = "tenants/default/groups/g";
  const auto buffer = CreateBuffer(group);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  GroupWatch watch(*groups_, group);
  const auto before = watch.Await(v1::Group::ACTIVE);
  for (auto& worker : workers_) worker->Hold(v1::WorkerCommand::kExecuteProgram);
  auto program = std::async(std::launch::async, [&] { return Execute(buffer->name()); });
  for (auto& worker : workers_) {
    ASSERT_TRUE(worker->Await(v1::WorkerCommand::kExecuteProgram));
  }

  workers_[1]->ReopenCommands();

  const ProgramEnd end = program.get();
  EXPECT_TRUE(absl::IsUnavailable(end.status)) << end.status;
  EXPECT_THAT(std::string(end.status.message()), HasSubstr("rank 1 (workers/w1)"));
  ASSERT_TRUE(end.error.has_value());
  EXPECT_EQ(end.error->ranks(1).reason(), "COMMAND_LOST");
  const auto after = watch.Await([&](const v1::Group& now) {
    return now.state() == v1::Group::ACTIVE && now.generation() > before->generation();
  });
  EXPECT_TRUE(after.has_value()) << "the worker is a rank of the next generation";
  EXPECT_EQ(workers_[1]->Count(v1::WorkerCommand::kExecuteProgram), 1u);
}

}  // namespace
}  // namespace perigee
