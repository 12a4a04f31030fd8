// Requests as GroupService takes them, without gRPC.
#include "server/rpc/group_handler.h"

#include "gmock/gmock.h"
#include "server/testing/handler_fixture.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;

v1::CreateGroupRequest NewRequest(const std::string& id, int32_t ranks) {
  v1::CreateGroupRequest request;
  request.set_parent("tenants/default");
  request.set_group_id(id);
  request.mutable_group()->set_ranks(ranks);
  return request;
}

TEST(ParseNewGroup, TakesEveryField) {
  v1::CreateGroupRequest request = NewRequest("g", 2);
  request.add_workers("workers/w1");
  request.add_workers("workers/w0");
  const auto group = ParseNewGroup(request);
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(group->tenant, "tenants/default");
  EXPECT_EQ(group->group_id, "g");
  EXPECT_EQ(group->ranks, 2);
  EXPECT_EQ(group->backend, "host") << "where none is asked for";
  EXPECT_THAT(group->workers, ElementsAre("workers/w1", "workers/w0"));
  request.mutable_group()->set_backend("cuda");
  EXPECT_EQ(ParseNewGroup(request)->backend, "cuda");
  EXPECT_EQ(group->transport, "nvlink") << "where none is asked for";
  request.mutable_group()->set_transport("nccl");
  EXPECT_EQ(ParseNewGroup(request)->transport, "nccl");
}

TEST(ParseNewGroup, NamesTheFieldThatIsWrong) {
  v1::CreateGroupRequest request = NewRequest("g", 0);
  ExpectNamesField(ParseNewGroup(request).status(), "group.ranks");
  request = NewRequest("G", 1);
  ExpectNamesField(ParseNewGroup(request).status(), "group_id");
  request = NewRequest("g", 1);
  request.add_workers("w0");
  ExpectNamesField(ParseNewGroup(request).status(), "workers");
  request = NewRequest("g", 1);
  request.mutable_group()->set_transport("nccl");
  ExpectNamesField(ParseNewGroup(request).status(), "group.transport");
  request.mutable_group()->set_backend("cuda");
  request.mutable_group()->set_transport("ib");
  ExpectNamesField(ParseNewGroup(request).status(), "group.transport");
  request = NewRequest("g", 1);
  request.set_parent("default");
  ExpectNamesField(ParseNewGroup(request).status(), "parent");
}

class GroupHandlerTest : public HandlerFixture {
 protected:
  GroupHandler handler_{control_, log_};
};

TEST_F(GroupHandlerTest, ARepeatedRequestGetsTheFirstAnswer) {
  AddWorkers(2);
  v1::CreateGroupRequest request = NewRequest("", 1);
  request.set_request_id("once");
  const auto first = Ask(handler_, &GroupHandler::Create, request);
  ASSERT_TRUE(first.status.ok()) << first.status;
  const auto again = Ask(handler_, &GroupHandler::Create, request);
  EXPECT_EQ(again.message.SerializeAsString(), first.message.SerializeAsString());
  EXPECT_EQ(control_.ListGroups(kTenant).size(), 1u);
  request.mutable_group()->set_ranks(2);
  EXPECT_TRUE(absl::IsInvalidArgument(Ask(handler_, &GroupHandler::Create, request).status));
}

TEST_F(GroupHandlerTest, DrainKeepsAClosedGroupAndDeleteRemovesIt) {
  AddWorkers(1);
  v1::DrainGroupRequest drain;
  drain.set_name(MakeGroup("g", 1));
  const auto drained = Ask(handler_, &GroupHandler::Drain, drain);
  ASSERT_TRUE(drained.status.ok()) << drained.status;
  EXPECT_EQ(drained.message.state(), v1::Group::CLOSED);
  v1::DeleteGroupRequest remove;
  remove.set_name(drain.name());
  EXPECT_TRUE(Ask(handler_, &GroupHandler::Delete, remove).status.ok());
  EXPECT_TRUE(absl::IsNotFound(Ask(handler_, &GroupHandler::Delete, remove).status));
}

TEST_F(GroupHandlerTest, ListsInPages) {
  AddWorkers(3);
  for (const char* id : {"a", "b", "c"}) MakeGroup(id, 1);
  v1::ListGroupsRequest request;
  request.set_parent(kTenant);
  request.set_page_size(2);
  auto page = handler_.List(request);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->groups_size(), 2);
  request.set_page_token(page->next_page_token());
  page = handler_.List(request);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->groups_size(), 1);
  EXPECT_EQ(page->groups(0).name(), "tenants/default/groups/c");
  EXPECT_EQ(page->next_page_token(), "");
}

class IgnoredGroup final : public GroupSink {
 public:
  void Update(const v1::Group&) override {}
  void End(const absl::Status&) override {}
};

class AwaitedProgram final : public ProgramSink {
 public:
  void Progress(const v1::ExecuteProgramResponse&) override {}
  void Finish(const CallResult& result) override { result_.done()(result); }
  Awaited<CallResult> result_;
};

TEST_F(GroupHandlerTest, EveryCallNamesTheFieldThatIsWrong) {
  v1::ListGroupsRequest list;
  list.set_parent("x");
  ExpectNamesField(handler_.List(list).status(), "parent");
  list.set_parent(kTenant);
  list.set_page_size(-1);
  ExpectNamesField(handler_.List(list).status(), "page_size");
  v1::GetGroupRequest get;
  get.set_name("g");
  ExpectNamesField(handler_.Get(get).status(), "name");
  v1::WatchGroupRequest watch;
  watch.set_name("g");
  ExpectNamesField(handler_.Watch(watch, std::make_shared<IgnoredGroup>()).status(), "name");
  v1::DrainGroupRequest drain;
  ExpectNamesField(Ask(handler_, &GroupHandler::Drain, drain).status, "name");
  v1::DeleteGroupRequest remove;
  ExpectNamesField(Ask(handler_, &GroupHandler::Delete, remove).status, "name");
  v1::ExecuteProgramRequest execute;
  execute.set_buffer("b");
  auto program = std::make_shared<AwaitedProgram>();
  EXPECT_EQ(handler_.Execute(execute, program), 0u);
  ExpectNamesField(program->result_.Get().status, "buffer");
}

TEST_F(GroupHandlerTest, APathThatIsNoneIsRefused) {
  v1::PathChoice good;
  good.set_path("pull");
  good.set_basis(v1::PathChoice::MEASURED);
  const auto expect = [&](const auto& spoil, const std::string& why) {
    v1::ExecuteProgramRequest execute;
    execute.set_buffer("tenants/default/groups/c/buffers/b");
    *execute.mutable_path_choice() = good;
    spoil(*execute.mutable_path_choice());
    auto program = std::make_shared<AwaitedProgram>();
    EXPECT_EQ(handler_.Execute(execute, program), 0u);
    EXPECT_THAT(std::string(program->result_.Get().status.message()), testing::HasSubstr(why));
  };
  expect([](auto& choice) { choice.set_path("fast"); }, "path_choice: path is 'fast', expected ");
  expect([](auto& choice) { choice.clear_basis(); }, "path_choice: basis is 0, expected DEFAULT");
  expect([](auto& choice) { choice.set_cell(std::string(1025, 'x')); }, "cell has 1025 bytes");
  expect([](auto& choice) { choice.set_reason(std::string(4097, 'x')); }, "reason has 4097 bytes");
  expect([](auto&) {}, "tenants/default/groups/c");
}

}  // namespace
}  // namespace perigee
