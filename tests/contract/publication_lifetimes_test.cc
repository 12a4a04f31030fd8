// What a target of direct publication lives for, on every backend: what is refused before anything
// is touched, and what its end leaves behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/direct_publication.h"
#include "tests/contract/device_array.h"
#include "tests/contract/early_end_fixture.h"

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PublicationLifetimesTest : public EarlyEndTest {
 protected:
  void SetUp() override {
    if (group_->path(0).publication() == nullptr) GTEST_SKIP() << "has no direct publication";
  }

  DirectPublication& publication(int32_t rank) { return *group_->path(rank).publication(); }

  std::vector<TargetPtr> Prepare() {
    std::vector<TargetPtr> targets(kRanks);
    const Sequence sequence = group_->NextSequence();
    ExpectOk(group_->OnAll([&](int32_t rank) {
      auto target = PrepareOn(rank, sequence);
      if (target.ok()) targets[rank] = *std::move(target);
      return target.status();
    }));
    return targets;
  }
  absl::StatusOr<TargetPtr> PrepareOn(int32_t rank, Sequence sequence) {
    const DeviceArray<int32_t> routes(backend(rank), inputs_[rank].topk_experts);
    return publication(rank).PrepareDispatch(sequence, {routes.data(), inputs_[rank].token_count});
  }
  absl::Status StoreAndPrepare(int32_t rank, const TargetPtr& target) {
    const DeviceArray<BFloat16> hidden(backend(rank), inputs_[rank].hidden);
    absl::Status status = publication(rank).StoreRows(target, hidden.data());
    return status.ok() ? publication(rank).PreparePublication(target, nullptr) : status;
  }
  std::vector<TargetPtr> Prepared() {
    const std::vector<TargetPtr> targets = Prepare();
    ExpectOk(group_->OnAll([&](int32_t rank) { return StoreAndPrepare(rank, targets[rank]); }));
    return targets;
  }
  // All ranks.
  std::vector<PlanPtr> Publish(const std::vector<TargetPtr>& targets) {
    std::vector<PlanPtr> plans(kRanks);
    const Sequence sequence = group_->NextSequence();
    ExpectOk(group_->OnAll([&](int32_t rank) {
      auto plan = publication(rank).Publish(sequence, targets[rank], {});
      if (plan.ok()) plans[rank] = *std::move(plan);
      return plan.status();
    }));
    return plans;
  }
  void ExpectRefused(const absl::Status& status, const std::string& text) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    EXPECT_FALSE(group_->path(0).last_error().has_value());
  }
};

TEST_P(PublicationLifetimesTest, ATargetIsPublishedOnceAndWhenPrepared) {
  const std::vector<TargetPtr> targets = Prepare();
  const Sequence next = group_->NextSequence();
  DirectPublication& path = publication(0);
  ExpectRefused(path.Publish(next, targets[0], {}).status(), "is not prepared");
  ExpectOk(group_->OnAll([&](int32_t rank) { return StoreAndPrepare(rank, targets[rank]); }));
  ExpectRefused(path.PreparePublication(targets[0], nullptr), "is prepared already");
  ExpectRefused(path.Publish(next, nullptr, {}).status(), "target is null");
  ExpectRefused(path.Publish(next, targets[1], {}).status(), "target is of rank 1");
  ExpectRefused(path.Publish(next, targets[0], {group_->path(0).rows(), nullptr}).status(),
                "output rows lies in the shard");
  // Nothing was touched by any of these.
  std::vector<PlanPtr> plans(kRanks);
  ExpectOk(group_->OnAll([&](int32_t rank) {
    auto plan = publication(rank).Publish(next, targets[rank], {});
    if (plan.ok()) plans[rank] = *std::move(plan);
    return plan.status();
  }));
  const Sequence later = group_->NextSequence();
  ExpectRefused(path.Publish(later, targets[0], {}).status(), "is dead, none lives");
  ExpectRefused(path.PreparePublication(targets[0], nullptr), "is dead, none lives");
  const DeviceArray<BFloat16> hidden(backend(0), inputs_[0].hidden);
  ExpectRefused(path.StoreRows(targets[0], hidden.data()), "is dead, none lives");
  // The rows live, without weights.
  ExpectOk(group_->OnAll([&](int32_t rank) { return Combine(rank, later, plans[rank]); }));
  ExpectNextWorks();
}

// By table: whatever would write the shard.
TEST_P(PublicationLifetimesTest, APreparedPublicationHasTheShardForItself) {
  const std::vector<DispatchResult> made = Dispatch();
  const std::vector<TargetPtr> targets = Prepared();
  DataPath& path = group_->path(0);
  const Sequence next = group_->NextSequence();
  const DeviceArray<BFloat16> hidden(backend(0), inputs_[0].hidden);
  const DeviceArray<int32_t> routes(backend(0), inputs_[0].topk_experts);
  const DeviceArray<BFloat16> rows(backend(0), group_->ReadRows(0));
  const DispatchInput in = {hidden.data(), routes.data(), nullptr, inputs_[0].token_count};
  const std::pair<const char*, std::function<absl::Status()>> writers[] = {
      {"dispatch", [&] { return path.Dispatch(next, in, {}).status(); }},
      {"dispatch with plan", [&] { return path.DispatchWithPlan(next, made[0].plan, in, {}); }},
      {"combine",
       [&] {
         return path.Combine(next, made[0].plan, {rows.data(), nullptr}, {hidden.data(), nullptr});
       }},
      {"run_experts in place",
       [&] {
         return path.RunExperts(made[0].plan, store_->WeightsOf(0, 0, 1),
                                {rows.data(), nullptr, path.rows()});
       }},
      {"copy probe", [&] { return path.ProbeCopy(CopyProbe::kOwnShard, 1); }},
      {"prepare dispatch",
       [&] {
         return publication(0).PrepareDispatch(next, {routes.data(), 1}).status();
       }},
  };
  for (const auto& [name, write] : writers) {
    SCOPED_TRACE(name);
    ExpectRefused(write(), "until it is published nothing else may write the shard");
  }
  ExpectOk(group_->OnAll(
      [&](int32_t rank) { return publication(rank).Publish(next, targets[rank], {}).status(); }));
  ExpectNextWorks();
}

TEST_P(PublicationLifetimesTest, ATargetDiesWithTheNextWriterOfTheShard) {
  const std::vector<TargetPtr> targets = Prepare();
  (void)Dispatch();
  ExpectRefused(publication(0).PreparePublication(targets[0], nullptr), "is dead, none lives");
  const std::vector<TargetPtr> second = Prepare();
  const std::vector<TargetPtr> third = Prepare();
  ExpectRefused(publication(0).PreparePublication(second[0], nullptr),
                absl::StrCat("the one of sequence ", third[0]->tag().sequence.value, " lives"));
  ExpectOk(group_->OnAll([&](int32_t rank) { return StoreAndPrepare(rank, third[rank]); }));
  (void)Publish(third);
  ExpectNextWorks();
}

// The rows of the last dispatch are gone when producers may write.
TEST_P(PublicationLifetimesTest, RowsDieWithTheNextTarget) {
  const std::vector<DispatchResult> made = Dispatch();
  const std::vector<TargetPtr> targets = Prepare();
  ExpectRefused(Combine(0, group_->NextSequence(), made[0].plan),
                "the shard holds rows of no plan");
}

TEST_P(PublicationLifetimesTest, TargetsOfAnotherGenerationAreRefused) {
  const std::vector<TargetPtr> targets = Prepared();
  RankGroupOptions options;
  options.geometry = kGeometry;
  options.hidden = group_->hidden();
  options.own_mappings = GetParam().own_mappings;
  options.generation = Generation(8);
  RankGroup next(backends(), options);
  const absl::Status status =
      next.path(0).publication()->Publish(next.NextSequence(), targets[0], {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("target is of rank 0, buffer 3, generation 7"),
                    HasSubstr("expected one of rank 0, buffer 3, generation 8")));
}

TEST_P(PublicationLifetimesTest, ADroppedTargetLeavesTheShardToOthers) {
  const std::vector<TargetPtr> targets = Prepared();
  for (int32_t rank = 0; rank < kRanks; ++rank) publication(rank).DropTarget();
  ExpectRefused(publication(0).Publish(group_->NextSequence(), targets[0], {}).status(),
                "is dead, none lives");
  for (int32_t rank = 1; rank < kRanks; ++rank) publication(rank).DropTarget();
}

// One rank declines: all leave, and none has the target any more.
TEST_P(PublicationLifetimesTest, ADeclinedPublicationIsOverOnEveryRank) {
  const std::vector<TargetPtr> targets = Prepared();
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    if (rank != 2) return publication(rank).Publish(sequence, targets[rank], {}).status();
    publication(rank).DropTarget();
    return group_->path(rank).Decline(sequence);
  });
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    if (rank == 2) continue;
    ExpectOne(rank, statuses[rank], absl::StatusCode::kFailedPrecondition, AbortReason::kDeclined,
              "rank 2 declined");
  }
  ExpectOk({statuses[2]});
  ExpectNextWorks();
  const Sequence next = group_->NextSequence();
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const absl::Status status = publication(rank).Publish(next, targets[rank], {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
}

TEST_P(PublicationLifetimesTest, ABadRouteIsToldWhenTheTargetIsPrepared) {
  inputs_[1].topk_experts[4] = kGeometry.experts;
  const Sequence sequence = group_->NextSequence();
  ExpectAll(group_->OnAll([&](int32_t rank) { return PrepareOn(rank, sequence).status(); }),
            absl::StatusCode::kInvalidArgument, AbortReason::kBadRoute, "rank 1 token 1 k 1");
  inputs_[1].topk_experts[4] = 0;
  ExpectNextWorks();
}

TEST_P(PublicationLifetimesTest, RanksThatPublishOtherTargetsDisagree) {
  const std::vector<TargetPtr> targets = Prepared();
  const Sequence sequence = group_->NextSequence();
  ExpectAll(group_->OnAll([&](int32_t rank) -> absl::Status {
    if (rank == 3) return group_->path(rank).Barrier(sequence);
    return publication(rank).Publish(sequence, targets[rank], {}).status();
  }),
            absl::StatusCode::kInvalidArgument, AbortReason::kDisagreement,
            "rank 3 says operation barrier, rank 0 says publish");
}

INSTANTIATE_TEST_SUITE_P(Backends, PublicationLifetimesTest, testing::ValuesIn(PublishingCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
