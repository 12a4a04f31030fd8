// A worker is lost, as clients of GroupService see it through gRPC.
#include <future>

#include "gmock/gmock.h"
#include "server/testing/rpc_fixture.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GroupLossTest : public RpcFixture {
 protected:
  GroupLossTest() : RpcFixture(absl::ZeroDuration()) {}
};

// Given a program under way, when a worker's streams break, then the program's caller hears every
// rank's own word, the watcher sees the group FENCED and, with a new process of that name, ACTIVE.
TEST_F(GroupLossTest, ABrokenWorkerFencesTheGroup) {
  AddWorkers(3);
  const auto group = CreateGroup(NewGroupRequest("g", 3));
  ASSERT_TRUE(group.ok()) << group.status();
  const auto buffer = CreateBuffer(group->name());
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  GroupWatch watch(*groups_, group->name());
  for (auto& worker : workers_) worker->Hold(v1::WorkerCommand::kExecuteProgram);
  auto program = std::async(std::launch::async, [&] { return Execute(buffer->name()); });
  for (auto& worker : workers_) {
    ASSERT_TRUE(worker->Await(v1::WorkerCommand::kExecuteProgram));
  }

  workers_[1]->Kill();

  const std::string loss = absl::StrCat("rank 1 (workers/w1) was lost in generation ",
                                        group->generation(), ": its connection broke");
  const auto fenced = watch.Await(v1::Group::FENCED);
  ASSERT_TRUE(fenced.has_value());
  EXPECT_EQ(fenced->state_reason(), loss);
  EXPECT_THAT(fenced->lost_ranks(), ElementsAre(1));
  const ProgramEnd end = program.get();
  EXPECT_TRUE(absl::IsUnavailable(end.status)) << end.status;
  EXPECT_EQ(std::string(end.status.message()), loss);
  EXPECT_FALSE(end.complete);
  ASSERT_TRUE(end.error.has_value());
  EXPECT_EQ(end.error->group(), group->name());
  EXPECT_EQ(end.error->generation(), group->generation());
  EXPECT_THAT(end.error->lost_ranks(), ElementsAre(1));
  ASSERT_EQ(end.error->ranks_size(), 3);
  EXPECT_EQ(end.error->ranks(1).reason(), "RANK_LOST");
  for (const int survivor : {0, 2}) {
    EXPECT_EQ(end.error->ranks(survivor).reason(), "GENERATION_ABORTED");
    EXPECT_THAT(end.error->ranks(survivor).message(), HasSubstr(loss));
  }

  const GrpcWorker replacement(channel_, 1, 2);
  const auto again = watch.Await(v1::Group::ACTIVE);
  ASSERT_TRUE(again.has_value());
  EXPECT_GT(again->generation(), group->generation());
  EXPECT_EQ(again->lost_ranks_size(), 0);
}

}  // namespace
}  // namespace perigee
