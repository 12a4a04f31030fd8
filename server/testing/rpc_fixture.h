// A coordinator on a loopback port, in the test's own process, with real stubs to its services.
#ifndef PERIGEE_SERVER_TESTING_RPC_FIXTURE_H_
#define PERIGEE_SERVER_TESTING_RPC_FIXTURE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/support/grpc_status.h"
#include "proto/v1/buffers.grpc.pb.h"
#include "proto/v1/error.pb.h"
#include "proto/v1/groups.grpc.pb.h"
#include "proto/v1/topology.grpc.pb.h"
#include "server/coordinator.h"
#include "server/rpc/group_error_metadata.h"
#include "server/testing/grpc_worker.h"

namespace perigee {

// Until then a test waits.
inline void SetPatience(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
}

// Reads a group's watch stream.
class GroupWatch {
 public:
  GroupWatch(v1::GroupService::Stub& stub, const std::string& name) {
    SetPatience(context_);
    v1::WatchGroupRequest request;
    request.set_name(name);
    reader_ = stub.WatchGroup(&context_, request);
  }
  ~GroupWatch() { context_.TryCancel(); }
  // The next update that is as wanted; none: the stream ended before.
  absl::optional<v1::Group> Await(const std::function<bool(const v1::Group&)>& wanted) {
    v1::Group group;
    while (reader_->Read(&group)) {
      if (wanted(group)) return group;
    }
    return absl::nullopt;
  }
  absl::optional<v1::Group> Await(v1::Group::State state) {
    return Await([state](const v1::Group& group) { return group.state() == state; });
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::Group>> reader_;
};

// How a program ended.
struct ProgramEnd {
  absl::Status status;
  absl::optional<v1::GroupError> error;  // from the trailing metadata
  bool complete = false;
};

class RpcFixture : public ::testing::Test {
 protected:
  static constexpr const char* kTenant = "tenants/default";

  // Heartbeats are not needed; a broken stream means loss after `grace`.
  explicit RpcFixture(absl::Duration grace) {
    CoordinatorOptions options;
    options.data_dir = absl::StrCat(
        ::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    options.lease_duration = absl::Minutes(10);
    options.reconnect_grace = grace;
    coordinator_ = *Coordinator::Start(options);
    channel_ = grpc::CreateChannel(coordinator_->address(), grpc::InsecureChannelCredentials());
    topology_ = v1::TopologyService::NewStub(channel_);
    groups_ = v1::GroupService::NewStub(channel_);
    buffers_ = v1::BufferService::NewStub(channel_);
  }

  void AddWorkers(int count) {
    for (int i = 0; i < count; ++i) workers_.push_back(std::make_unique<GrpcWorker>(channel_, i));
  }

  // One call, as (stub.*method)(context, request, response).
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub& stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request) {
    grpc::ClientContext context;
    SetPatience(context);
    Response response;
    const absl::Status status = FromGrpc((stub.*method)(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }

  static v1::CreateGroupRequest NewGroupRequest(const std::string& id, int32_t ranks) {
    v1::CreateGroupRequest request;
    request.set_parent(kTenant);
    request.set_group_id(id);
    request.mutable_group()->set_ranks(ranks);
    return request;
  }
  absl::StatusOr<v1::Group> CreateGroup(const v1::CreateGroupRequest& request) {
    return Call(*groups_, &v1::GroupService::Stub::CreateGroup, request);
  }
  absl::StatusOr<v1::Buffer> CreateBuffer(const std::string& group) {
    v1::CreateBufferRequest request;
    request.set_parent(group);
    request.set_buffer_id("b");
    v1::BufferShape& shape = *request.mutable_buffer()->mutable_shape();
    shape.set_tokens(4);
    shape.set_hidden(8);
    shape.set_topk(2);
    shape.set_experts(6);
    return Call(*buffers_, &v1::BufferService::Stub::CreateBuffer, request);
  }
  ProgramEnd Execute(const std::string& buffer) {
    grpc::ClientContext context;
    SetPatience(context);
    v1::ExecuteProgramRequest request;
    request.set_buffer(buffer);
    request.mutable_program()->add_operations()->mutable_barrier();
    const auto reader = groups_->ExecuteProgram(&context, request);
    ProgramEnd end;
    v1::ExecuteProgramResponse message;
    while (reader->Read(&message)) end.complete |= message.complete();
    end.status = FromGrpc(reader->Finish());
    const auto& metadata = context.GetServerTrailingMetadata();
    const auto found = metadata.find(kGroupErrorMetadataKey);
    if (found != metadata.end()) {
      end.error.emplace();
      EXPECT_TRUE(end.error->ParseFromString({found->second.data(), found->second.size()}));
    }
    return end;
  }

  std::unique_ptr<Coordinator> coordinator_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::TopologyService::Stub> topology_;
  std::unique_ptr<v1::GroupService::Stub> groups_;
  std::unique_ptr<v1::BufferService::Stub> buffers_;
  std::vector<std::unique_ptr<GrpcWorker>> workers_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_TESTING_RPC_FIXTURE_H_
