// A coordinator is killed (-9) at random points while it opens generations, grants serials and
// issues tokens. Every start of it works in the same directory: no serial may ever be granted or
// given away twice, and what was given away under a request_id is what a later start gives for it.
// PERIGEE_TOKEN_KILLS says how often (200), PERIGEE_SEED repeats the choices of a run.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/support/grpc_status.h"
#include "proto/support/publication_token.h"
#include "proto/v1/buffers.grpc.pb.h"
#include "proto/v1/groups.grpc.pb.h"
#include "proto/v1/publication.grpc.pb.h"
#include "server/testing/grpc_worker.h"
#include "tests/testing/process.h"

namespace perigee {
namespace {

constexpr absl::Duration kStep = absl::Seconds(60);
constexpr const char* kBufferName = "tenants/default/groups/g/buffers/b";

uint64_t NumberFrom(const char* variable, uint64_t otherwise) {
  const char* const given = std::getenv(variable);
  uint64_t number = 0;
  return given != nullptr && absl::SimpleAtoi(given, &number) ? number : otherwise;
}

class TokenKillTest : public ::testing::Test {
 protected:
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub& stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request) {
    if (calls_until_kill_ >= 0 && calls_until_kill_-- == 0) Kill();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    Response response;
    const absl::Status status = FromGrpc((stub.*method)(&context, request, &response));
    if (!status.ok()) return status;
    return response;
  }

  void StartCoordinator() {
    coordinator_ = std::make_unique<Process>(
        std::vector<std::string>{"server/perigee-coordinator", "--address=127.0.0.1:0",
                                 absl::StrCat("--data_dir=", directory_)},
        std::vector<std::string>());
    const auto line = coordinator_->AwaitErr(" serving address=", kStep);
    ASSERT_TRUE(line) << coordinator_->err();
    const std::string address = line->substr(line->rfind('=') + 1);
    channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    publication_ = v1::PublicationService::NewStub(channel_);
  }

  // While the next call is on its way, or one of those after it.
  void Kill() {
    killer_ = std::thread([this, yields = random_() % 10000] {
      for (uint64_t i = 0; i < yields; ++i) std::this_thread::yield();
      coordinator_->Signal(SIGKILL);
    });
  }

  // Until a call fails, which is how the end of the coordinator shows.
  void UseTokens() {
    v1::CreateGroupRequest group;
    group.set_parent("tenants/default");
    group.set_group_id("g");
    group.mutable_group()->set_ranks(1);
    const auto groups = v1::GroupService::NewStub(channel_);
    if (!Call(*groups, &v1::GroupService::Stub::CreateGroup, group).ok()) return;
    v1::CreateBufferRequest buffer;
    buffer.set_parent("tenants/default/groups/g");
    buffer.set_buffer_id("b");
    v1::BufferShape& shape = *buffer.mutable_buffer()->mutable_shape();
    shape.set_tokens(4);
    shape.set_hidden(8);
    shape.set_topk(2);
    shape.set_experts(2);
    const auto buffers = v1::BufferService::NewStub(channel_);
    if (!Call(*buffers, &v1::BufferService::Stub::CreateBuffer, buffer).ok()) return;
    while (IssueOnce(NewRequest())) {
    }
  }

  v1::IssueTokensRequest NewRequest() {
    v1::IssueTokensRequest request;
    request.set_buffer(kBufferName);
    request.set_count(static_cast<int32_t>(1 + random_() % 1024));
    request.set_request_id(absl::StrCat("request-", ++last_request_));
    return request;
  }

  bool IssueOnce(const v1::IssueTokensRequest& request) {
    const auto response = Call(*publication_, &v1::PublicationService::Stub::IssueTokens, request);
    if (!response.ok()) {
      in_doubt_.push_back(request);
      return false;
    }
    TakeIssued(request, *response);
    return true;
  }

  void TakeIssued(const v1::IssueTokensRequest& request, const v1::IssueTokensResponse& response) {
    std::vector<std::string> tokens(response.tokens().begin(), response.tokens().end());
    EXPECT_EQ(tokens.size(), static_cast<size_t>(request.count()));
    for (const std::string& bytes : tokens) {
      const auto token = DecodePublicationToken(bytes);
      ASSERT_TRUE(token);
      EXPECT_TRUE(issued_.insert(token->serial).second)
          << "serial " << token->serial << " was given away twice";
    }
    answered_.push_back({request, std::move(tokens)});
  }

  // Of what the worker was sent, whether or not it could still answer.
  void TakeGrants(const GrpcWorker& worker) {
    for (const v1::WorkerCommand& command : worker.Commands()) {
      const v1::TokenGrant& grant =
          command.has_grant_tokens() ? command.grant_tokens() : command.open_session().tokens();
      if (grant.count() == 0) continue;
      const SerialRange range{grant.first_serial(), grant.count()};
      for (const SerialRange& other : granted_) {
        EXPECT_FALSE(range.overlaps(other)) << "serials from " << range.first << " and from "
                                            << other.first << " were granted twice";
      }
      granted_.push_back(range);
    }
  }

  // Answers of earlier starts.
  void RepeatRequests() {
    for (const auto& [request, tokens] : answered_) {
      const auto again = Call(*publication_, &v1::PublicationService::Stub::IssueTokens, request);
      ASSERT_TRUE(again.ok()) << request.request_id() << ": " << again.status();
      EXPECT_EQ(std::vector<std::string>(again->tokens().begin(), again->tokens().end()), tokens);
    }
    answered_.clear();
    // One that nobody has heard of was put down, or it was not: its group is gone.
    for (const v1::IssueTokensRequest& request : std::exchange(in_doubt_, {})) {
      const auto again = Call(*publication_, &v1::PublicationService::Stub::IssueTokens, request);
      EXPECT_TRUE(again.ok() || absl::IsNotFound(again.status())) << again.status();
      if (!again.ok()) continue;
      TakeIssued(request, *again);
      ++settled_later_;
    }
  }

  const std::string directory_ = ::testing::TempDir() + "/data";
  std::mt19937_64 random_;
  std::unique_ptr<Process> coordinator_;
  int calls_until_kill_ = -1;  // negative: none is to come
  std::thread killer_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::PublicationService::Stub> publication_;
  uint64_t last_request_ = 0;

  std::vector<SerialRange> granted_;
  std::set<uint64_t> issued_;
  size_t settled_later_ = 0;
  std::vector<std::pair<v1::IssueTokensRequest, std::vector<std::string>>> answered_;
  std::vector<v1::IssueTokensRequest> in_doubt_;
};

TEST_F(TokenKillTest, NoSerialIsHandedOutTwice) {
  const uint64_t kills = NumberFrom("PERIGEE_TOKEN_KILLS", 200);
  const uint64_t seed = NumberFrom("PERIGEE_SEED", std::random_device()());
  std::cout << "PERIGEE_SEED=" << seed << std::endl;
  random_.seed(seed);
  for (uint64_t kill_index = 0; kill_index < kills && !HasFailure(); ++kill_index) {
    StartCoordinator();
    if (HasFatalFailure()) return;
    RepeatRequests();
    if (HasFatalFailure()) return;
    GrpcWorker worker(channel_, 0, static_cast<int>(kill_index));
    // The first call forms the group. The first kill comes late: something is to be issued.
    calls_until_kill_ = kill_index == 0 ? 40 : static_cast<int>(random_() % 64);
    UseTokens();
    ASSERT_TRUE(killer_.joinable()) << "a call failed before the coordinator was killed";
    killer_.join();
    EXPECT_EQ(coordinator_->AwaitExit(kStep), 128 + SIGKILL);
    worker.Kill();
    TakeGrants(worker);
  }
  for (const uint64_t serial : issued_) {
    EXPECT_TRUE(std::any_of(granted_.begin(), granted_.end(),
                            [&](const SerialRange& range) { return range.contains(serial); }))
        << serial << " was given away without its worker being told";
    if (HasFailure()) break;
  }
  std::cout << kills << " kills, " << granted_.size() << " ranges granted, " << issued_.size()
            << " tokens issued, " << settled_later_ << " answers got from a later start\n";
  EXPECT_GT(issued_.size(), 0u);
}

}  // namespace
}  // namespace perigee
