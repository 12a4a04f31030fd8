// What a source view lives for, on every backend: what is refused before anything is touched, and
// what it leaves alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/direct_publication.h"
#include "kernels/owner_source.h"
#include "tests/contract/device_array.h"
#include "tests/contract/early_end_fixture.h"
#include "tests/contract/kept_arrays.h"

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SourceLifetimesTest : public EarlyEndTest {
 protected:
  SourceLifetimesTest() {
    sources_ = true;
    Start(absl::Seconds(120));
  }

  OwnerSource& owner(int32_t rank) { return *group_->path(rank).source(); }

  absl::StatusOr<SourcePtr> PrepareOn(int32_t rank, Sequence sequence, bool stores = true) {
    const RankInput& rows = inputs_[rank];
    SourceInput input = {kept_.Add(backend(rank), rows.topk_experts), rows.token_count};
    if (stores) {
      input.hidden = kept_.Add(backend(rank), rows.hidden);
      input.route_weights = kept_.Add(backend(rank), rows.route_weights);
    }
    return owner(rank).PrepareSource(sequence, input);
  }
  // All ranks.
  std::vector<SourcePtr> Prepare() {
    std::vector<SourcePtr> sources(kRanks);
    const Sequence sequence = group_->NextSequence();
    ExpectOk(group_->OnAll([&](int32_t rank) {
      auto source = PrepareOn(rank, sequence);
      if (source.ok()) sources[rank] = *std::move(source);
      return source.status();
    }));
    return sources;
  }
  std::vector<PlanPtr> Materialise(const std::vector<SourcePtr>& sources) {
    std::vector<PlanPtr> plans(kRanks);
    const Sequence sequence = group_->NextSequence();
    ExpectOk(group_->OnAll([&](int32_t rank) {
      auto plan = owner(rank).Materialise(sequence, sources[rank], {});
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
  std::string Named(const SourcePtr& source) {
    return absl::StrCat("{rank 0, buffer 3, generation 7, sequence ", source->tag().sequence.value,
                        "}");
  }

  KeptArrays kept_;
};

TEST_P(SourceLifetimesTest, AViewIsMaterialisedAsOftenAsWantedAndItsRowsDieAsAnyOthers) {
  const std::vector<SourcePtr> sources = Prepare();
  const std::vector<PlanPtr> plans = Materialise(sources);
  Sequence next = group_->NextSequence();
  ExpectOk(group_->OnAll([&](int32_t rank) { return Combine(rank, next, plans[rank], true); }));
  next = group_->NextSequence();
  ExpectRefused(Combine(0, next, plans[0]), "the shard holds rows of no plan");
  ExpectOk(group_->OnAll(
      [&](int32_t rank) { return owner(rank).Materialise(next, sources[rank], {}).status(); }));
  const Sequence later = group_->NextSequence();
  ExpectOk(group_->OnAll([&](int32_t rank) { return Combine(rank, later, plans[rank], true); }));
  (void)Dispatch();
  (void)Materialise(sources);
  ExpectNextWorks();
}

TEST_P(SourceLifetimesTest, AViewDiesWithTheNextAndItsPlanDoesNot) {
  const std::vector<SourcePtr> first = Prepare();
  const std::vector<SourcePtr> second = Prepare();
  const Sequence next = group_->NextSequence();
  ExpectRefused(
      owner(0).Materialise(next, first[0], {}).status(),
      absl::StrCat("source view ", Named(first[0]), " is dead, ", Named(second[0]), " lives"));
  ExpectRefused(owner(0).Materialise(next, nullptr, {}).status(), "source view is null");
  ExpectRefused(owner(0).Materialise(next, second[1], {}).status(),
                absl::StrCat("source view {rank 1, buffer 3, generation 7, sequence ",
                             second[1]->tag().sequence.value, "} is of another data path, ",
                             Named(second[0]), " lives"));
  ExpectRefused(owner(0).Materialise(next, second[0], {group_->path(0).rows(), nullptr}).status(),
                "output rows lies in the shard");
  // Nothing was touched by any of these.
  ExpectOk(group_->OnAll([&](int32_t rank) {
    const DeviceArray<BFloat16> hidden(backend(rank), inputs_[rank].hidden);
    return group_->path(rank).DispatchWithPlan(
        next, first[rank]->plan(), {hidden.data(), nullptr, nullptr, inputs_[rank].token_count},
        {});
  }));
  (void)Materialise(second);
  ExpectNextWorks();
}

// A PrepareSource that ends early leaves the last view alive, but where it has stored other rows.
TEST_P(SourceLifetimesTest, WhatARankStoresEndsItsView) {
  const std::vector<SourcePtr> sources = Prepare();
  inputs_[1].topk_experts[4] = kGeometry.experts;
  Sequence sequence = group_->NextSequence();
  ExpectAll(group_->OnAll([&](int32_t rank) {
    return PrepareOn(rank, sequence, /*stores=*/rank == 0).status();
  }),
            absl::StatusCode::kInvalidArgument, AbortReason::kBadRoute, "rank 1 token 1 k 1");
  inputs_[1].topk_experts[4] = 0;
  sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    const absl::Status status = owner(rank).Materialise(sequence, sources[rank], {}).status();
    if (rank != 0) return status;
    ExpectRefused(status, absl::StrCat("source view ", Named(sources[0]), " is dead, none lives"));
    return group_->path(rank).Decline(sequence);
  });
  ExpectOk({statuses[0]});
  for (int32_t rank = 1; rank < kRanks; ++rank) {
    ExpectOne(rank, statuses[rank], absl::StatusCode::kFailedPrecondition, AbortReason::kDeclined,
              "rank 0 declined");
  }
  (void)Materialise(Prepare());
  ExpectNextWorks();
}

// What is not known to be good is not handed out, nor what a later view has gone over.
TEST_P(SourceLifetimesTest, AddressesOfADeadViewAreNotToBeHad) {
  const std::vector<SourcePtr> first = Prepare();
  EXPECT_TRUE(first[0]->Take({Access::kLoad}).ok());
  const std::vector<SourcePtr> second = Prepare();
  ExpectRefused(
      first[0]->Take({Access::kLoad}).status(),
      absl::StrCat("source view ", Named(first[0]), " is dead, ", Named(second[0]), " lives"));
  EXPECT_TRUE(second[0]->Take({Access::kLoad}).ok());
  group_ = nullptr;
  const absl::Status status = second[0]->Take({Access::kLoad}).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("source view ", Named(second[0]), " is dead, none lives")));
}

// Where operations queue, it is known when they are settled that it was not run.
TEST_P(SourceLifetimesTest, OneBehindAnOperationThatFailsHasStoredNothing) {
  RankGroupOptions options;
  options.geometry = kGeometry;
  options.hidden = group_->hidden();
  options.own_mappings = GetParam().own_mappings;
  options.sources = true;
  group_ = std::make_unique<RankGroup>(queueing_backends(), options);
  std::vector<SourcePtr> sources(kRanks);
  const Sequence prepare = group_->NextSequence();
  const Sequence dispatch = group_->NextSequence();
  const Sequence again = group_->NextSequence();
  const Sequence materialise = group_->NextSequence();
  ExpectOk(group_->OnAll([&](int32_t rank) {
    auto source = PrepareOn(rank, prepare);
    if (source.ok()) sources[rank] = *std::move(source);
    return source.ok() ? group_->path(rank).Synchronize() : source.status();
  }));
  inputs_[1].topk_experts[4] = kGeometry.experts;
  std::vector<SourcePtr> others(kRanks);
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) -> absl::Status {
    DataPath& path = group_->path(rank);
    const RankInput& input = inputs_[rank];
    const DispatchInput in = {kept_.Add(backend(rank), input.hidden),
                              kept_.Add(backend(rank), input.topk_experts), nullptr,
                              input.token_count};
    const auto plan = path.Dispatch(dispatch, in, {});
    if (!plan.ok()) return plan.status();
    auto source = PrepareOn(rank, again);
    if (!source.ok()) return source.status();
    others[rank] = *std::move(source);
    return path.Synchronize();
  });
  ExpectAll(statuses, absl::StatusCode::kInvalidArgument, AbortReason::kBadRoute,
            "rank 1 token 1 k 1");
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(sources[rank]->lives());
    if (others[rank] != nullptr) {
      EXPECT_FALSE(others[rank]->lives());
    }
  }
  ExpectOk(group_->OnAll([&](int32_t rank) {
    const Sequence next = group_->path(rank).queues() ? materialise : again;
    const absl::Status status = owner(rank).Materialise(next, sources[rank], {}).status();
    return status.ok() ? group_->path(rank).Synchronize() : status;
  }));
}

// It moves no row: what lies in the shard, and what is being published there, goes on.
TEST_P(SourceLifetimesTest, PreparingLeavesTheShardAlone) {
  const std::vector<DispatchResult> made = Dispatch();
  (void)Prepare();
  const Sequence combine = group_->NextSequence();
  ExpectOk(group_->OnAll([&](int32_t rank) { return Combine(rank, combine, made[rank].plan); }));

  const Sequence prepare = group_->NextSequence();
  const Sequence other = group_->NextSequence();
  const Sequence publish = group_->NextSequence();
  std::vector<PlanPtr> plans(kRanks);
  ExpectOk(group_->OnAll([&](int32_t rank) -> absl::Status {
    DirectPublication& publication = *group_->path(rank).publication();
    const DeviceArray<int32_t> routes(backend(rank), inputs_[rank].topk_experts);
    const DeviceArray<BFloat16> hidden(backend(rank), inputs_[rank].hidden);
    auto target = publication.PrepareDispatch(prepare, {routes.data(), kGeometry.tokens});
    if (!target.ok()) return target.status();
    absl::Status status = publication.StoreRows(*target, hidden.data());
    if (status.ok()) status = publication.PreparePublication(*target, nullptr);
    if (!status.ok()) return status;
    const auto source = PrepareOn(rank, other);
    if (!source.ok()) return source.status();
    auto plan = publication.Publish(publish, *target, {});
    if (plan.ok()) plans[rank] = *std::move(plan);
    return plan.status();
  }));
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const auto published = group_->path(rank).ReadPlan(plans[rank]);
    ASSERT_TRUE(published.ok()) << published.status();
    EXPECT_EQ(published->duplicate_groups, made[rank].tensors.duplicate_groups);
    EXPECT_EQ(published->duplicate_rows, made[rank].tensors.duplicate_rows);
  }
  ExpectNextWorks();
}

TEST_P(SourceLifetimesTest, APreparedPublicationKeepsMaterialiseOut) {
  const std::vector<SourcePtr> sources = Prepare();
  const Sequence prepare = group_->NextSequence();
  ExpectOk(group_->OnAll([&](int32_t rank) {
    DirectPublication& publication = *group_->path(rank).publication();
    const DeviceArray<int32_t> routes(backend(rank), inputs_[rank].topk_experts);
    const auto target = publication.PrepareDispatch(prepare, {routes.data(), kGeometry.tokens});
    return target.ok() ? publication.PreparePublication(*target, nullptr) : target.status();
  }));
  ExpectRefused(owner(0).Materialise(group_->NextSequence(), sources[0], {}).status(),
                "until it is published nothing else may write the shard");
}

TEST_P(SourceLifetimesTest, ViewsOfAnotherGenerationAreRefused) {
  const std::vector<SourcePtr> sources = Prepare();
  RankGroupOptions options;
  options.geometry = kGeometry;
  options.hidden = group_->hidden();
  options.own_mappings = GetParam().own_mappings;
  options.generation = Generation(8);
  options.sources = true;
  RankGroup next(backends(), options);
  const absl::Status status =
      next.path(0).source()->Materialise(next.NextSequence(), sources[0], {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(absl::StrCat("source view ", Named(sources[0]))),
                    HasSubstr("none lives of rank 0, buffer 3, generation 8")));
}

TEST_P(SourceLifetimesTest, ABadRouteIsToldAndTheLastViewLivesOn) {
  const std::vector<SourcePtr> sources = Prepare();
  inputs_[1].topk_experts[4] = kGeometry.experts;
  const Sequence sequence = group_->NextSequence();
  ExpectAll(group_->OnAll([&](int32_t rank) { return PrepareOn(rank, sequence, false).status(); }),
            absl::StatusCode::kInvalidArgument, AbortReason::kBadRoute, "rank 1 token 1 k 1");
  inputs_[1].topk_experts[4] = 0;
  (void)Materialise(sources);
  ExpectNextWorks();
}

TEST_P(SourceLifetimesTest, RanksThatMaterialiseOtherViewsDisagree) {
  const std::vector<SourcePtr> sources = Prepare();
  const Sequence sequence = group_->NextSequence();
  ExpectAll(group_->OnAll([&](int32_t rank) -> absl::Status {
    if (rank == 3) return PrepareOn(rank, sequence, false).status();
    return owner(rank).Materialise(sequence, sources[rank], {}).status();
  }),
            absl::StatusCode::kInvalidArgument, AbortReason::kDisagreement,
            "rank 3 says operation prepare source, rank 0 says materialise");
  (void)Materialise(sources);
}

TEST_P(SourceLifetimesTest, ArgumentsAreChecked) {
  const Sequence next = group_->NextSequence();
  OwnerSource& source = owner(0);
  ExpectRefused(source.PrepareSource(next, {nullptr, 1}).status(),
                "topk_experts is null, expected routes of 1 tokens");
  ExpectRefused(source.PrepareSource(next, {nullptr, kGeometry.tokens + 1}).status(),
                "token count of rank 0 is 7");
  const DeviceArray<int32_t> routes(backend(0), inputs_[0].topk_experts);
  ExpectRefused(source.PrepareSource(next, {routes.data(), 1, source.source_hidden() + 8}).status(),
                "hidden lies in the source shard");
  ExpectRefused(
      source.PrepareSource(next, {routes.data(), 1, nullptr, source.source_route_weights() + 1})
          .status(),
      "route weights lies in the source shard");
}

INSTANTIATE_TEST_SUITE_P(Backends, SourceLifetimesTest, testing::ValuesIn(PublishingCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
