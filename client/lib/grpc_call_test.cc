#include "client/lib/grpc_call.h"

#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "proto/support/grpc_server.h"
#include "proto/v1/health.grpc.pb.h"

namespace perigee {
namespace {

std::unique_ptr<GrpcServer> ServerAt(const std::string& address) {
  auto server = GrpcServer::Start({.address = address, .services = {}});
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

absl::Status CheckHealth(const std::shared_ptr<grpc::Channel>& channel) {
  GrpcCall call({}, absl::Seconds(20));
  grpc::health::v1::HealthCheckResponse response;
  return call.Outcome(grpc::health::v1::Health::NewStub(channel)->Check(
      call.context(), grpc::health::v1::HealthCheckRequest(), &response));
}

// Given a channel whose first attempt has failed, when the server is there after all, then one wait
// is enough for a call that is sent once.
TEST(ConnectWithinTest, AFailedAttemptIsFollowedByAnother) {
  auto server = ServerAt("127.0.0.1:0");
  ASSERT_NE(server, nullptr);
  const std::string address = server->address();
  server.reset();
  const auto channel = NewChannel(address);
  EXPECT_TRUE(absl::IsUnavailable(CheckHealth(channel)));

  server = ServerAt(address);
  ASSERT_NE(server, nullptr);
  EXPECT_TRUE(ConnectWithin(*channel, absl::Seconds(20)));
  EXPECT_TRUE(CheckHealth(channel).ok());
}

TEST(ConnectWithinTest, AServerThatIsNotThereIsGivenUp) {
  auto server = ServerAt("127.0.0.1:0");
  ASSERT_NE(server, nullptr);
  const auto channel = NewChannel(server->address());
  server.reset();
  EXPECT_FALSE(ConnectWithin(*channel, absl::Milliseconds(100)));
  EXPECT_TRUE(absl::IsUnavailable(CheckHealth(channel)));
}

}  // namespace
}  // namespace perigee
