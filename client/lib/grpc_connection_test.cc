#include "client/lib/grpc_connection.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/lib/group_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/grpc_server.h"
#include "proto/v1/groups.grpc.pb.h"
#include "proto/v1/topology.grpc.pb.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

// Groups whose calls do what the test asks.
class FakeGroups final : public v1::GroupService::Service {
 public:
  grpc::Status CreateGroup(grpc::ServerContext*, const v1::CreateGroupRequest* request,
                           v1::Group* group) override {
    request_ids.push_back(request->request_id());
    if (failures-- > 0) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "try again");
    group->set_name("tenants/default/groups/g");
    return grpc::Status::OK;
  }
  grpc::Status WatchGroup(grpc::ServerContext*, const v1::WatchGroupRequest*,
                          grpc::ServerWriter<v1::Group>* writer) override {
    v1::Group group;
    for (uint64_t version = 1; version <= 1000; ++version) {
      group.set_version(version);
      if (!writer->Write(group)) break;
    }
    return grpc::Status::OK;
  }
  grpc::Status ExecuteProgram(grpc::ServerContext* context, const v1::ExecuteProgramRequest*,
                              grpc::ServerWriter<v1::ExecuteProgramResponse>* writer) override {
    v1::ExecuteProgramResponse message;
    message.set_generation(7);
    writer->Write(message);
    if (hang) {
      while (!context->IsCancelled()) std::this_thread::yield();
      return grpc::Status::CANCELLED;
    }
    v1::GroupError error;
    error.set_generation(7);
    error.add_lost_ranks(1);
    context->AddTrailingMetadata(kGroupErrorKey, error.SerializeAsString());
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "rank 1 was lost");
  }

  int failures = 0;
  std::vector<std::string> request_ids;
  std::atomic<bool> hang{false};
};

class GrpcConnectionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = GrpcServer::Start({.address = "127.0.0.1:0", .services = {&groups_}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->SetServing(v1::GroupService::service_full_name(), true);
    auto connection = ConnectGrpc({.address = server_->address(), .stop = stop_.get_token()});
    ASSERT_TRUE(connection.ok()) << connection.status();
    connection_ = *std::move(connection);
  }

  FakeGroups groups_;
  std::unique_ptr<GrpcServer> server_;
  std::stop_source stop_;
  std::unique_ptr<Connection> connection_;
};

void Ignore(const v1::ExecuteProgramResponse&) {}

TEST_F(GrpcConnectionTest, ARepeatedCallKeepsItsRequestId) {
  groups_.failures = 2;
  v1::CreateGroupRequest request;
  request.set_request_id("once");
  EXPECT_TRUE(connection_->CreateGroup(request).ok());
  EXPECT_EQ(groups_.request_ids, (std::vector<std::string>{"once", "once", "once"}));
}

TEST_F(GrpcConnectionTest, AFailedProgramBringsEveryRanksWord) {
  const absl::Status status =
      connection_->ExecuteProgram(v1::ExecuteProgramRequest(), absl::Seconds(30), Ignore);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  const auto error = GroupErrorOf(status);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->lost_ranks(0), 1);
}

TEST_F(GrpcConnectionTest, AStopRequestCancelsARunningProgram) {
  groups_.hang = true;
  const absl::Status status = connection_->ExecuteProgram(
      v1::ExecuteProgramRequest(), absl::Seconds(30),
      [this](const v1::ExecuteProgramResponse&) { stop_.request_stop(); });
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST_F(GrpcConnectionTest, ASilentProgramIsGivenUp) {
  groups_.hang = true;
  const absl::Status status =
      connection_->ExecuteProgram(v1::ExecuteProgramRequest(), absl::Milliseconds(50), Ignore);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("silent for 50ms"));
}

TEST_F(GrpcConnectionTest, AWatchEndsWhenTheCallerHasSeenEnough) {
  uint64_t last = 0;
  const absl::Status status = connection_->WatchGroup(v1::WatchGroupRequest(), absl::Seconds(30),
                                                      [&](const v1::Group& group) {
                                                        last = group.version();
                                                        return last < 5;
                                                      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(last, 5u);
}

TEST_F(GrpcConnectionTest, CleaningUpWorksAfterAStopRequest) {
  stop_.request_stop();
  EXPECT_TRUE(absl::IsCancelled(connection_->GetGroup(v1::GetGroupRequest()).status()));
  EXPECT_TRUE(absl::IsUnimplemented(connection_->DeleteGroup(v1::DeleteGroupRequest())));
}

TEST(ConnectGrpcTest, NothingThereNamesTheAddress) {
  const auto connection = ConnectGrpc({.address = "127.0.0.1:1"});
  EXPECT_TRUE(absl::IsUnavailable(connection.status())) << connection.status();
  EXPECT_THAT(std::string(connection.status().message()), HasSubstr("127.0.0.1:1"));
}

TEST(ConnectGrpcTest, AnotherServerIsNotACoordinator) {
  v1::TopologyService::Service other;
  auto server = GrpcServer::Start({.address = "127.0.0.1:0", .services = {&other}});
  ASSERT_TRUE(server.ok());
  const auto connection = ConnectGrpc({.address = (*server)->address()});
  EXPECT_THAT(std::string(connection.status().message()), HasSubstr("not a coordinator"));
}

}  // namespace
}  // namespace perigee
