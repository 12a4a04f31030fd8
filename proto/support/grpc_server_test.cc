#include "proto/support/grpc_server.h"

#include <string>

#include "absl/time/clock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/v1/health.grpc.pb.h"

namespace perigee {
namespace {

TEST(GrpcServer, PortInUseIsAnErrorNamingTheAddress) {
  auto first = GrpcServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = GrpcServer::Start({(*first)->address(), {}});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.status().ToString().find((*first)->address()), std::string::npos);
}

TEST(GrpcServer, RefusesWhatIsNotAnAddress) {
  for (const char* address : {"", "localhost", ":80", "h:", "h:x", "h:70000", "h:-1"}) {
    EXPECT_EQ(GrpcServer::Start({address, {}}).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
}

TEST(GrpcServer, HealthFollowsSetServing) {
  auto server = GrpcServer::Start({"127.0.0.1:0", {}});
  ASSERT_TRUE(server.ok()) << server.status();
  auto stub = grpc::health::v1::Health::NewStub(
      grpc::CreateChannel((*server)->address(), grpc::InsecureChannelCredentials()));
  for (const bool serving : {true, false, true}) {
    (*server)->SetServing("perigee.v1.Test", serving);
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
    grpc::health::v1::HealthCheckRequest request;
    request.set_service("perigee.v1.Test");
    grpc::health::v1::HealthCheckResponse response;
    const grpc::Status status = stub->Check(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.status(), serving ? grpc::health::v1::HealthCheckResponse::SERVING
                                         : grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  }
}

}  // namespace
}  // namespace perigee
