// One rank on a data path that does as it is told.
#include "worker/attach/local_executor.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "worker/testing/fake_backend.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr LocalPlanId kPlan(9);

class LocalExecutorTest : public ::testing::Test {
 protected:
  LocalExecutorTest() {
    shape_.geometry = Geometry{1, 2, 4, 2, 1, 1};
    shape_.hidden = 8;
    shape_.intermediate = 8;
    shape_.layers = 2;
    memory_ = *BufferMemory::Allocate(backend_, shape_, RankId(0));
    DataPathOptions options;
    options.geometry = shape_.geometry;
    options.hidden = shape_.hidden;
    options.buffer = BufferId(3);
    options.generation = Generation(7);
    path_ = std::make_unique<FakeDataPath>(options);
    const auto layout = ClientArenaLayout::Create(shape_.geometry, shape_.hidden, 4096);
    arena_memory_.resize(layout.size_bytes);
    arena_ = layout.View(arena_memory_.data());
    executor_ = std::make_unique<LocalExecutor>(group_, site(), arena_, Sequence(5), clock_);
  }

  ProgramSite site() { return {shape_, *path_, *memory_, objects_, tensors_}; }
  // The operation, with the sequence that is next if it takes one.
  LocalCompletion Do(const LocalOperation& operation) {
    const Sequence next = executor_->last_sequence().Next();
    return executor_->Execute(EncodeCommand({next, operation}, Generation(7)));
  }
  void ExpectOk(const LocalOperation& operation) {
    const LocalCompletion done = Do(operation);
    EXPECT_TRUE(done.status.ok()) << done.status;
    EXPECT_EQ(done.reason, "");
    EXPECT_EQ(done.kind, static_cast<uint32_t>(KindOf(operation)));
  }
  void Fail(const std::string& name, FakeDataPath::Outcome outcome) {
    path_->set_behaviour([=](const std::string& operation, Sequence) {
      return operation == name ? outcome : FakeDataPath::Outcome();
    });
  }

  const GroupView group_{"tenants/t/groups/g", Generation(7), RankId(0), {"workers/a"}};
  BufferShape shape_;
  FakeBackend backend_;
  ByteBudget budget_{1 << 20};
  std::unique_ptr<BufferMemory> memory_;
  std::unique_ptr<FakeDataPath> path_;
  BufferObjects objects_{"tenants/t/groups/g/buffers/b", BufferId(3), Generation(7)};
  TensorStore tensors_{backend_, budget_};
  FakeClock clock_;
  std::vector<std::byte> arena_memory_;
  ClientArenaView arena_;
  std::unique_ptr<LocalExecutor> executor_;
};

TEST_F(LocalExecutorTest, ALayerRunsOnTheArena) {
  ExpectOk(LocalDispatch{kPlan, 3, true});
  EXPECT_EQ(path_->last_dispatch().hidden, arena_.hidden);
  EXPECT_EQ(path_->last_dispatch().topk_experts, arena_.topk_experts);
  EXPECT_EQ(path_->last_dispatch().route_weights, arena_.route_weights);
  EXPECT_EQ(path_->last_dispatch().token_count, 3);
  EXPECT_EQ(*arena_.plan.sequence, 5u);
  EXPECT_EQ(arena_.plan.experts_to_copy[0], -1) << "as the plan has it";
  ExpectOk(LocalPrefetchWeights{kPlan, 1, 3});
  EXPECT_EQ(path_->last_weights().layer, 1);
  EXPECT_EQ(path_->last_weights().version, 3u);
  ExpectOk(LocalRunExperts{kPlan, 1, 3, true});
  EXPECT_EQ(path_->last_run_experts().output, path_->rows());
  ExpectOk(LocalCombine{kPlan, true});
  EXPECT_EQ(path_->last_combine().rows, path_->rows());
  ExpectOk(LocalDispatchWithPlan{kPlan, 2, false});
  EXPECT_EQ(path_->last_dispatch().route_weights, nullptr);
  ExpectOk(LocalBarrier{});
  ExpectOk(LocalEmpty{});
  EXPECT_THAT(path_->calls(), ElementsAre("dispatch 5", "prefetch_weights 6", "run_experts 0",
                                          "combine 7", "dispatch_with_plan 8", "barrier 9"));
  EXPECT_EQ(executor_->last_sequence(), Sequence(9));
  EXPECT_EQ(objects_.last_sequence(), Sequence(9));
  EXPECT_EQ(executor_->in_collective(), 0u);
  EXPECT_FALSE(executor_->fatal().has_value());
}

TEST_F(LocalExecutorTest, PlansLiveByTheirIds) {
  ExpectOk(LocalDispatch{kPlan, 1, false});
  ExpectOk(LocalClonePlan{LocalPlanId(10), kPlan});
  ExpectOk(LocalReleasePlan{kPlan});
  EXPECT_EQ(executor_->plan_count(), 1u);
  ExpectOk(LocalDispatchWithPlan{LocalPlanId(10), 1, false});
  const LocalCompletion gone = Do(LocalReleasePlan{kPlan});
  EXPECT_EQ(gone.reason, "STALE_OBJECT");
  EXPECT_THAT(std::string(gone.status.message()), HasSubstr("there is no plan 9"));
  EXPECT_EQ(Do(LocalClonePlan{LocalPlanId(11), kPlan}).reason, "STALE_OBJECT");
  for (uint64_t id = 1000; executor_->plan_count() < kMaxPlans; ++id) {
    ExpectOk(LocalClonePlan{LocalPlanId(id), LocalPlanId(10)});
  }
  EXPECT_EQ(Do(LocalClonePlan{LocalPlanId(1), LocalPlanId(10)}).status.code(),
            absl::StatusCode::kResourceExhausted);
  ExpectOk(LocalClonePlan{LocalPlanId(1000), LocalPlanId(10)});
}

TEST_F(LocalExecutorTest, ACollectiveCommandThatIsRefusedIsDeclined) {
  const LocalCompletion refused = Do(LocalCombine{kPlan, false});
  EXPECT_EQ(refused.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.reason, "STALE_OBJECT");
  EXPECT_EQ(refused.sequence, Sequence(5));
  EXPECT_THAT(path_->calls(), ElementsAre("decline 5"));
  ExpectOk(LocalBarrier{});
  EXPECT_EQ(Do(LocalRunExperts{kPlan, 0, 1, false}).reason, "STALE_OBJECT");
  EXPECT_THAT(path_->calls(), ElementsAre("decline 5", "barrier 6")) << "local: nobody waits";
  EXPECT_FALSE(executor_->fatal().has_value());
}

TEST_F(LocalExecutorTest, AnEntryThatSaysNonsenseIsDeclinedWhereItTakesASequence) {
  CommandEntry entry = EncodeCommand({Sequence(5), LocalDispatch{kPlan, 1, false}}, Generation(7));
  entry.token_count = 1000;
  EXPECT_EQ(executor_->Execute(entry).reason, "INVALID_PROGRAM");
  EXPECT_THAT(path_->calls(), ElementsAre("decline 5"));
  entry.generation = 8;
  entry.token_count = 1;
  const LocalCompletion stale = executor_->Execute(entry);
  EXPECT_EQ(stale.status.code(), absl::StatusCode::kFailedPrecondition) << stale.status;
  entry = EncodeCommand({Sequence(0), LocalEmpty{}}, Generation(7));
  entry.kind = 77;
  const size_t calls = path_->calls().size();
  EXPECT_EQ(executor_->Execute(entry).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(path_->calls().size(), calls);
}

TEST_F(LocalExecutorTest, WhereAnOperationStoodIsReported) {
  FakeDataPath::Outcome left =
      path_->LeaveEarly(AbortReason::kBadRoute, Operation::kDispatch, Sequence(5), 0);
  left.record->token = 2;
  left.record->k = 1;
  left.record->seen = 99;
  Fail("dispatch", left);
  const LocalCompletion bad = Do(LocalDispatch{kPlan, 3, false});
  EXPECT_EQ(bad.reason, "BAD_ROUTE");
  EXPECT_EQ(bad.token, 2);
  EXPECT_EQ(bad.k, 1);
  EXPECT_EQ(bad.seen, 99);
  EXPECT_EQ(bad.rank, 0);
  EXPECT_FALSE(executor_->fatal().has_value()) << "all ranks have left it";
  EXPECT_EQ(executor_->plan_count(), 0u);
  EXPECT_THAT(path_->calls(), ElementsAre("dispatch 5"));
}

TEST_F(LocalExecutorTest, WhatLeavesRanksOutOfStepIsFatal) {
  Fail("barrier", path_->LeaveEarly(AbortReason::kDeadline, Operation::kBarrier, Sequence(5), 0));
  EXPECT_EQ(Do(LocalBarrier{}).reason, "DEADLINE");
  ASSERT_TRUE(executor_->fatal().has_value());
  EXPECT_EQ(executor_->fatal()->reason(), "DEADLINE");
  EXPECT_EQ(executor_->fatal()->worker(), "workers/a");
}

TEST_F(LocalExecutorTest, WhereTheOthersCannotBeToldThatIsTheGraverFailure) {
  Fail("decline", path_->LeaveEarly(AbortReason::kDeadline, Operation::kNone, Sequence(5), 0));
  const LocalCompletion refused = Do(LocalCombine{kPlan, false});
  EXPECT_EQ(refused.reason, "DEADLINE");
  EXPECT_THAT(std::string(refused.status.message()), HasSubstr("there is no plan 9"));
  EXPECT_TRUE(executor_->fatal().has_value());
}

TEST_F(LocalExecutorTest, TheCollectiveOperationUnderWayIsSeenFromOutside) {
  std::vector<uint64_t> seen;
  path_->set_behaviour([&](const std::string&, Sequence) {
    seen.push_back(executor_->in_collective());
    return FakeDataPath::Outcome();
  });
  ExpectOk(LocalDispatch{kPlan, 1, false});
  ExpectOk(LocalRunExperts{kPlan, 0, 1, false});
  ExpectOk(LocalBarrier{});
  EXPECT_THAT(seen, ElementsAre(5, 0, 6));
}

}  // namespace
}  // namespace perigee
