// GroupService through gRPC: a coordinator, workers and a client on loopback.
#include <future>

#include "gmock/gmock.h"
#include "server/testing/rpc_fixture.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class GroupServiceTest : public RpcFixture {
 protected:
  GroupServiceTest() : RpcFixture(absl::Seconds(20)) {}
};

TEST_F(GroupServiceTest, AGroupFormsAndIsActive) {
  AddWorkers(2);
  workers_[1]->Hold(v1::WorkerCommand::kOpenSession);
  auto created =
      std::async(std::launch::async, [this] { return CreateGroup(NewGroupRequest("g", 2)); });
  ASSERT_TRUE(workers_[1]->Await(v1::WorkerCommand::kOpenSession));
  GroupWatch watch(*groups_, "tenants/default/groups/g");
  const auto forming = watch.Await(v1::Group::FORMING);
  ASSERT_TRUE(forming.has_value());
  workers_[1]->Release();
  const auto active = watch.Await(v1::Group::ACTIVE);
  ASSERT_TRUE(active.has_value());
  EXPECT_GT(active->version(), forming->version());
  EXPECT_EQ(active->generation(), forming->generation());
  const auto group = created.get();
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ(group->state(), v1::Group::ACTIVE);
  ASSERT_EQ(group->members_size(), 2);
  EXPECT_EQ(group->members(1).worker(), "workers/w1");
}

TEST_F(GroupServiceTest, AProgramRunsOnEveryRank) {
  AddWorkers(2);
  ASSERT_TRUE(CreateGroup(NewGroupRequest("g", 2)).ok());
  const auto buffer = CreateBuffer("tenants/default/groups/g");
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  const ProgramEnd end = Execute(buffer->name());
  EXPECT_TRUE(end.status.ok()) << end.status;
  EXPECT_TRUE(end.complete);
  for (const auto& worker : workers_) {
    EXPECT_EQ(worker->Count(v1::WorkerCommand::kExecuteProgram), 1u);
  }
}

TEST_F(GroupServiceTest, ListsComeInPages) {
  AddWorkers(3);
  std::vector<std::string> names;
  for (const char* id : {"c", "a", "b"}) ASSERT_TRUE(CreateGroup(NewGroupRequest(id, 1)).ok());
  v1::ListGroupsRequest groups;
  groups.set_parent(kTenant);
  groups.set_page_size(2);
  do {
    const auto page = Call(*groups_, &v1::GroupService::Stub::ListGroups, groups);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const v1::Group& group : page->groups()) names.push_back(group.name());
    groups.set_page_token(page->next_page_token());
  } while (!groups.page_token().empty());
  EXPECT_THAT(names, ElementsAre("tenants/default/groups/a", "tenants/default/groups/b",
                                 "tenants/default/groups/c"));

  v1::ListWorkersRequest workers;
  workers.set_page_size(2);
  const auto first = Call(*topology_, &v1::TopologyService::Stub::ListWorkers, workers);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_EQ(first->workers_size(), 2);
  EXPECT_EQ(first->workers(0).state(), v1::Worker::ASSIGNED);
  workers.set_page_token(first->next_page_token());
  const auto second = Call(*topology_, &v1::TopologyService::Stub::ListWorkers, workers);
  ASSERT_EQ(second->workers_size(), 1);
  EXPECT_EQ(second->workers(0).name(), "workers/w2");
}

// The client that asked has gone before the group was there; its next attempt gets that group.
TEST_F(GroupServiceTest, ARepeatedRequestGetsTheAnswerThatWasLost) {
  AddWorkers(2);
  v1::CreateGroupRequest request = NewGroupRequest("", 1);
  request.set_request_id("once");
  workers_[0]->Hold(v1::WorkerCommand::kOpenSession);
  grpc::ClientContext context;
  auto lost = std::async(std::launch::async, [&] {
    v1::Group group;
    return FromGrpc(groups_->CreateGroup(&context, request, &group));
  });
  ASSERT_TRUE(workers_[0]->Await(v1::WorkerCommand::kOpenSession));
  context.TryCancel();
  EXPECT_TRUE(absl::IsCancelled(lost.get()));
  workers_[0]->Release();

  const auto first = CreateGroup(request);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->state(), v1::Group::ACTIVE);
  const auto again = CreateGroup(request);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->SerializeAsString(), first->SerializeAsString());
  v1::ListGroupsRequest list;
  list.set_parent(kTenant);
  EXPECT_EQ(Call(*groups_, &v1::GroupService::Stub::ListGroups, list)->groups_size(), 1);
}

void ExpectNamesField(const absl::Status& status, const std::string& field) {
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), StartsWith(field));
}

TEST_F(GroupServiceTest, AWrongArgumentIsNamed) {
  ExpectNamesField(CreateGroup(NewGroupRequest("g", 0)).status(), "group.ranks");
  ExpectNamesField(CreateGroup(NewGroupRequest("No", 1)).status(), "group_id");
  v1::GetGroupRequest get;
  get.set_name("groups/g");
  ExpectNamesField(Call(*groups_, &v1::GroupService::Stub::GetGroup, get).status(), "name");
  v1::GetWorkerRequest worker;
  worker.set_name("w0");
  ExpectNamesField(Call(*topology_, &v1::TopologyService::Stub::GetWorker, worker).status(),
                   "name");
  v1::ListWorkersRequest list;
  list.set_page_token("nonsense");
  ExpectNamesField(Call(*topology_, &v1::TopologyService::Stub::ListWorkers, list).status(),
                   "page_token");
  ExpectNamesField(CreateBuffer("g").status(), "parent");
  ExpectNamesField(Execute("b").status, "buffer");
}

}  // namespace
}  // namespace perigee
