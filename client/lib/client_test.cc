#include "client/lib/client.h"

#include <memory>
#include <utility>

#include "client/lib/fake_connection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    auto fake = std::make_unique<FakeConnection>();
    fake_ = fake.get();
    client_ = std::make_unique<Client>(std::move(fake));
  }
  FakeConnection* fake_;  // owned by client_
  std::unique_ptr<Client> client_;
};

v1::Group GroupAt(v1::Group::State state, uint64_t generation) {
  v1::Group group;
  group.set_name("tenants/default/groups/g");
  group.set_state(state);
  group.set_generation(generation);
  return group;
}

TEST_F(ClientTest, ListsFollowEveryPage) {
  fake_->worker_pages.resize(2);
  fake_->worker_pages[0].add_workers()->set_name("workers/w0");
  fake_->worker_pages[0].set_next_page_token("more");
  fake_->worker_pages[1].add_workers()->set_name("workers/w1");
  const auto workers = client_->ListWorkers();
  ASSERT_TRUE(workers.ok());
  ASSERT_EQ(workers->size(), 2u);
  EXPECT_EQ((*workers)[1].name(), "workers/w1");
  EXPECT_EQ(fake_->list_workers_requests[1].page_token(), "more");
}

TEST_F(ClientTest, EveryCreationHasARequestIdOfItsOwn) {
  ASSERT_TRUE(client_->CreateGroup({.ranks = 2}).ok());
  ASSERT_TRUE(client_->CreateGroup({.ranks = 2}).ok());
  const auto& requests = fake_->create_group_requests;
  EXPECT_FALSE(requests[0].request_id().empty());
  EXPECT_NE(requests[0].request_id(), requests[1].request_id());
  EXPECT_EQ(requests[0].parent(), "tenants/default");
  EXPECT_EQ(requests[0].group().ranks(), 2);
}

TEST_F(ClientTest, BuffersCarryShapeAndTimeout) {
  BufferOptions options;
  options.shape.set_tokens(16);
  options.operation_timeout = absl::Seconds(3);
  options.sms = 24;
  options.programmatic_launch = false;
  ASSERT_TRUE(client_->CreateBuffer("tenants/default/groups/g", options).ok());
  EXPECT_EQ(fake_->create_buffer_requests[0].buffer().shape().tokens(), 16);
  EXPECT_EQ(fake_->create_buffer_requests[0].buffer().operation_timeout_ms(), 3000);
  EXPECT_EQ(fake_->create_buffer_requests[0].buffer().sms(), 24);
  EXPECT_TRUE(fake_->create_buffer_requests[0].buffer().no_programmatic_launch());
}

TEST_F(ClientTest, BuffersOfNoGroupAreThoseOfAll) {
  ASSERT_TRUE(client_->ListBuffers("").ok());
  EXPECT_EQ(fake_->list_buffers_requests[0].parent(), "tenants/default/groups/-");
}

TEST_F(ClientTest, WaitsUntilTheGroupIsActiveAgain) {
  fake_->watched = {GroupAt(v1::Group::ACTIVE, 7), GroupAt(v1::Group::FENCED, 7),
                    GroupAt(v1::Group::FORMING, 9), GroupAt(v1::Group::ACTIVE, 9)};
  const auto group =
      client_->WaitForNextGeneration("tenants/default/groups/g", Generation(7), absl::Seconds(1));
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(group->generation(), 9u);
}

TEST_F(ClientTest, WaitingEndsWhereTheGroupIsClosed) {
  fake_->watched = {GroupAt(v1::Group::FENCED, 7), GroupAt(v1::Group::CLOSED, 7)};
  const auto group =
      client_->WaitForNextGeneration("tenants/default/groups/g", Generation(7), absl::Seconds(1));
  EXPECT_EQ(group.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ClientTest, AWaitThatWasInVainSaysWhatItSaw) {
  fake_->watched = {GroupAt(v1::Group::FENCED, 7)};
  fake_->watched[0].set_state_reason("rank 1 (workers/w1) was lost");
  fake_->watch_status = absl::DeadlineExceededError("deadline");
  const auto group =
      client_->WaitForNextGeneration("tenants/default/groups/g", Generation(7), absl::Seconds(1));
  EXPECT_EQ(group.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(group.status().message()),
              HasSubstr("is FENCED at generation 7 (rank 1 (workers/w1) was lost)"));
}

TEST_F(ClientTest, EveryTicketIsARequestOfItsOwn) {
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(client_->IssueAttachTicket("b", Generation(7), RankId(3)).ok());
  }
  ASSERT_EQ(fake_->ticket_requests.size(), 2u);
  EXPECT_EQ(fake_->ticket_requests[0].buffer(), "b");
  EXPECT_EQ(fake_->ticket_requests[0].generation(), 7u);
  EXPECT_EQ(fake_->ticket_requests[0].rank(), 3);
  EXPECT_NE(fake_->ticket_requests[0].request_id(), fake_->ticket_requests[1].request_id());
}

TEST_F(ClientTest, AProgramIsDoneOnlyWhenTheLastMessageSaysSo) {
  fake_->messages.resize(2);
  fake_->messages[1].set_complete(true);
  int heard = 0;
  const auto count = [&](const v1::ExecuteProgramResponse&) { ++heard; };
  EXPECT_TRUE(client_->ExecuteProgram("b", Generation(7), v1::Program(), count).ok());
  EXPECT_EQ(heard, 2);
  EXPECT_EQ(fake_->execute_requests[0].generation(), 7u);
  EXPECT_FALSE(fake_->execute_requests[0].has_path_choice());

  fake_->messages[1].set_complete(false);
  v1::PathChoice choice;
  choice.set_path("pull");
  EXPECT_FALSE(client_->ExecuteProgram("b", Generation(7), v1::Program(), count, &choice).ok());
  EXPECT_EQ(fake_->execute_requests[1].path_choice().path(), "pull");
}

}  // namespace
}  // namespace perigee
