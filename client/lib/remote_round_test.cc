#include "client/lib/remote_round.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kTokens = 8;

class RemoteRoundTest : public ::testing::Test {
 protected:
  RemoteRound Decide(const std::vector<LocalOperation>& operations) {
    return DecideRound(operations, kTokens, plans_);
  }
  // Every rank keeps it, each under a number of its own: 10, 11, 12.
  void KeepEverywhere(const std::string& name, uint64_t sequence) {
    for (int32_t rank = 0; rank < 3; ++rank) {
      plans_.Keep(RankId(rank), LocalPlanId(10 + rank), {name, sequence});
    }
  }
  static std::string Told(const RemoteRound& round, int32_t rank) {
    return round.told[rank] ? round.told[rank]->reason : "";
  }

  RemotePlans plans_{3};
};

TEST_F(RemoteRoundTest, ADispatchIsOneProgramWhateverTheNumbersAndCounts) {
  const RemoteRound round =
      Decide({LocalDispatch{LocalPlanId(1), 0, true}, LocalDispatch{LocalPlanId(7), kTokens, true},
              LocalDispatch{LocalPlanId(1), 3, true}});
  ASSERT_TRUE(round.operation.has_value());
  const v1::DispatchOperation& dispatch = round.operation->dispatch();
  EXPECT_EQ(dispatch.hidden(), kRemoteHidden);
  EXPECT_EQ(dispatch.topk_experts(), kRemoteTopkExperts);
  EXPECT_EQ(dispatch.route_weights(), kRemoteRouteWeights);
  EXPECT_EQ(dispatch.plan(), round.new_plan);
  EXPECT_TRUE(dispatch.saved_plan().empty());
}

TEST_F(RemoteRoundTest, ASourceIsPreparedAlikeAndMaterialisedByItsPlan) {
  const std::vector<LocalOperation> prepares = {
      LocalPrepareSource{LocalPlanId(10), 0, true, false},
      LocalPrepareSource{LocalPlanId(11), 5, true, false},
      LocalPrepareSource{LocalPlanId(12), 3, true, false}};
  const RemoteRound round = Decide(prepares);
  ASSERT_TRUE(round.operation.has_value());
  const v1::PrepareSourceOperation& prepare = round.operation->prepare_source();
  EXPECT_EQ(prepare.topk_experts(), kRemoteTopkExperts);
  EXPECT_EQ(prepare.hidden(), kRemoteHidden);
  EXPECT_EQ(prepare.route_weights(), "");
  EXPECT_EQ(prepare.plan(), round.new_plan);
  EXPECT_EQ(round.token_counts, (std::vector<int32_t>{0, 5, 3}));
  std::vector<LocalCompletion> done(3);
  for (LocalCompletion& rank : done) rank.sequence = Sequence(4);
  NoteOutcome(round, prepares, done, plans_);

  const std::vector<LocalOperation> fetches = {LocalMaterialise{LocalPlanId(10)},
                                               LocalMaterialise{LocalPlanId(11)},
                                               LocalMaterialise{LocalPlanId(12)}};
  const RemoteRound fetched = Decide(fetches);
  ASSERT_TRUE(fetched.operation.has_value());
  EXPECT_EQ(fetched.operation->materialise().source(), kRemoteSource);
  EXPECT_NE(fetched.operation->materialise().plan(), round.new_plan);
  EXPECT_EQ(fetched.new_plan, "");

  // It may have stored other rows on one rank, and nobody's view is to be trusted there.
  done[1].status = absl::CancelledError("left");
  NoteOutcome(round, prepares, done, plans_);
  EXPECT_EQ(Told(Decide(fetches), 1), "STALE_OBJECT");
  const RemoteRound apart = Decide({LocalPrepareSource{LocalPlanId(1), 0, true, false},
                                    LocalPrepareSource{LocalPlanId(1), 0, false, false},
                                    LocalPrepareSource{LocalPlanId(1), 0, true, false}});
  EXPECT_EQ(Told(apart, 0), "DISAGREEMENT");
}

TEST_F(RemoteRoundTest, ANameIsNotUsedWhileARankKeepsItsPlan) {
  const std::string first = plans_.FreeName();
  KeepEverywhere(first, 1);
  const std::string second = plans_.FreeName();
  EXPECT_NE(second, first);
  plans_.Release(RankId(0), LocalPlanId(10));
  plans_.Release(RankId(1), LocalPlanId(11));
  EXPECT_EQ(plans_.FreeName(), second);
  plans_.Release(RankId(2), LocalPlanId(12));
  EXPECT_EQ(plans_.FreeName(), first);
}

TEST_F(RemoteRoundTest, APlanIsTheSameUnderEveryRanksOwnNumber) {
  KeepEverywhere("p", 4);
  const RemoteRound round =
      Decide({LocalCombine{LocalPlanId(10), false}, LocalCombine{LocalPlanId(11), false},
              LocalCombine{LocalPlanId(12), false}});
  ASSERT_TRUE(round.operation.has_value());
  EXPECT_EQ(round.operation->combine().plan(), "p");
  EXPECT_TRUE(round.operation->combine().route_weights_output().empty());
}

TEST_F(RemoteRoundTest, RanksThatMeanDifferentPlansDisagree) {
  KeepEverywhere("p", 4);
  plans_.Keep(RankId(1), LocalPlanId(11), {"q", 9});
  const RemoteRound round =
      Decide({LocalCombine{LocalPlanId(10), false}, LocalCombine{LocalPlanId(11), false},
              LocalCombine{LocalPlanId(12), false}});
  EXPECT_FALSE(round.operation.has_value());
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(Told(round, rank), "DISAGREEMENT");
    EXPECT_EQ(round.told[rank]->awaited_rank, rank == 1 ? 0 : 1);
    EXPECT_THAT(std::string(round.told[rank]->status.message()),
                HasSubstr("rank 1 says combine by a plan of sequence 9, rank 0 says combine by a "
                          "plan of sequence 4"));
  }
}

TEST_F(RemoteRoundTest, RanksThatMeanDifferentOperationsDisagree) {
  KeepEverywhere("p", 4);
  const RemoteRound round =
      Decide({LocalBarrier{}, LocalBarrier{}, LocalPrefetchWeights{LocalPlanId(12), 0, 3}});
  EXPECT_EQ(Told(round, 0), "DISAGREEMENT");
  EXPECT_EQ(round.told[0]->awaited_rank, 2);
  const RemoteRound weights =
      Decide({LocalDispatch{LocalPlanId(1), 1, true}, LocalDispatch{LocalPlanId(1), 1, false},
              LocalDispatch{LocalPlanId(1), 1, true}});
  EXPECT_EQ(Told(weights, 2), "DISAGREEMENT");
}

TEST_F(RemoteRoundTest, WhatOneRankCannotDoTheOthersHearIsDeclined) {
  KeepEverywhere("p", 4);
  plans_.Release(RankId(2), LocalPlanId(12));
  const RemoteRound round =
      Decide({LocalCombine{LocalPlanId(10), false}, LocalCombine{LocalPlanId(11), false},
              LocalCombine{LocalPlanId(12), false}});
  EXPECT_FALSE(round.operation.has_value());
  EXPECT_EQ(Told(round, 0), "DECLINED");
  EXPECT_EQ(round.told[1]->awaited_rank, 2);
  EXPECT_EQ(Told(round, 2), "STALE_OBJECT");
  for (const int32_t count : {-1, kTokens + 1}) {
    const RemoteRound bad =
        Decide({LocalDispatch{LocalPlanId(1), count, false},
                LocalDispatch{LocalPlanId(1), 1, false}, LocalDispatch{LocalPlanId(1), 1, false}});
    EXPECT_EQ(Told(bad, 0), "INVALID_PROGRAM") << count;
    EXPECT_EQ(Told(bad, 1), "DECLINED") << count;
  }
}

TEST_F(RemoteRoundTest, ExpertsOfSomeRanksAreRefusedAndTheOthersWait) {
  KeepEverywhere("p", 4);
  const LocalRunExperts experts{LocalPlanId(10), 0, 3, false};
  const RemoteRound some = Decide({experts, LocalBarrier{}, LocalBarrier{}});
  EXPECT_FALSE(some.operation.has_value());
  EXPECT_EQ(Told(some, 0), "INVALID_PROGRAM");
  EXPECT_FALSE(some.told[1].has_value());
  const RemoteRound all = Decide({experts, LocalRunExperts{LocalPlanId(11), 0, 3, false},
                                  LocalRunExperts{LocalPlanId(12), 0, 3, false}});
  ASSERT_TRUE(all.operation.has_value());
  EXPECT_EQ(all.operation->run_experts().weights_version(), 3u);
}

class RemotePublicationTest : public RemoteRoundTest {
 protected:
  static constexpr LocalPlanId kPlan{4};

  template <typename Operation>
  RemoteRound DecideAll(const Operation& operation) {
    return Decide({operation, operation, operation});
  }
  // As if it had been run, and had ended so.
  template <typename Operation>
  void Ran(const Operation& operation, const std::vector<absl::Status>& statuses) {
    const RemoteRound round = DecideAll(operation);
    ASSERT_TRUE(round.operation.has_value());
    std::vector<LocalCompletion> ranks(3);
    for (int32_t rank = 0; rank < 3; ++rank) {
      ranks[rank].status = statuses[rank];
      if (IsCollective(KindOf(operation))) ranks[rank].sequence = Sequence(++sequence_);
    }
    NoteOutcome(round, std::vector<LocalOperation>(3, operation), ranks, plans_);
  }
  template <typename Operation>
  void Ran(const Operation& operation) {
    Ran(operation, std::vector<absl::Status>(3));
  }
  void ExpectTold(const RemoteRound& round, const std::string& reason) {
    for (int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(Told(round, rank), reason) << rank;
  }

  uint64_t sequence_ = 20;
};

TEST_F(RemotePublicationTest, StepsCarryTheirTokensAndCountsAndMakeAPlan) {
  Ran(LocalPrepareDispatch{kPlan, 5});
  EXPECT_EQ(DecideAll(LocalStoreRows{kPlan}).token_counts, (std::vector<int32_t>{5, 5, 5}));
  EXPECT_EQ(DecideAll(LocalPreparePublication{kPlan, true, {}})
                .operation->prepare_publication()
                .tokens_size(),
            0);
  const RemoteRound round =
      Decide({LocalPreparePublication{kPlan, true, {}},
              LocalPreparePublication{kPlan, true, PublicationTokenBytes{'x'}},
              LocalPreparePublication{kPlan, true, {}}});
  ASSERT_TRUE(round.operation.has_value());
  const v1::PreparePublicationOperation& prepare = round.operation->prepare_publication();
  ASSERT_EQ(prepare.tokens_size(), 3);
  EXPECT_EQ(prepare.tokens(0), "");
  EXPECT_EQ(prepare.tokens(1).size(), kPublicationTokenBytes);
  EXPECT_EQ(prepare.route_weights(), kRemoteRouteWeights);
  Ran(LocalPreparePublication{kPlan, true, {}});
  const RemoteRound publish = DecideAll(LocalPublish{kPlan});
  ASSERT_TRUE(publish.operation.has_value());
  EXPECT_EQ(publish.operation->publish().plan(), publish.new_plan);
  Ran(LocalPublish{kPlan});
  EXPECT_EQ(plans_.Find(RankId(2), kPlan)->name, publish.new_plan);
  EXPECT_FALSE(plans_.AnyTarget());
}

TEST_F(RemotePublicationTest, APreparedOneHasTheShardForItself) {
  Ran(LocalPrepareDispatch{kPlan, 5});
  Ran(LocalPreparePublication{kPlan, false, {}});
  ExpectTold(DecideAll(LocalDispatch{kPlan, 1, false}), "PUBLICATION_PENDING");
  ExpectTold(DecideAll(LocalPrepareDispatch{kPlan, 1}), "PUBLICATION_PENDING");
  ExpectTold(DecideAll(LocalPreparePublication{kPlan, false, {}}), "PUBLICATION_PENDING");
  ExpectTold(DecideAll(LocalCombine{kPlan, false}), "STALE_OBJECT");
  EXPECT_TRUE(DecideAll(LocalPublish{kPlan}).operation.has_value());
}

// What a failed program has dropped on one worker the next publish drops on the others.
TEST_F(RemotePublicationTest, WhereATargetIsOverTheOthersWorkersAreTold) {
  Ran(LocalPrepareDispatch{kPlan, 5});
  Ran(LocalPreparePublication{kPlan, false, {}},
      {absl::OkStatus(), absl::PermissionDeniedError("SPENT"), absl::OkStatus()});
  EXPECT_FALSE(plans_.target(RankId(1)).has_value());
  EXPECT_TRUE(plans_.target(RankId(2))->prepared);
  EXPECT_TRUE(DecideAll(LocalPublish{kPlan}).operation.has_value());
  Ran(LocalPublish{kPlan}, std::vector<absl::Status>(3, absl::FailedPreconditionError("")));
  ExpectTold(DecideAll(LocalPublish{kPlan}), "STALE_OBJECT");
}

TEST_F(RemotePublicationTest, LocalStepsAreEveryRanksOrNobodys) {
  Ran(LocalPrepareDispatch{kPlan, 5});
  const RemoteRound round =
      Decide({LocalStoreRows{kPlan}, LocalPreparePublication{kPlan, false, {}}, LocalBarrier{}});
  EXPECT_EQ(Told(round, 0), "INVALID_PROGRAM");
  EXPECT_EQ(Told(round, 1), "INVALID_PROGRAM");
  EXPECT_FALSE(round.told[2].has_value());
  ExpectTold(DecideAll(LocalPublish{kPlan}), "STALE_OBJECT");
  Ran(LocalDispatch{kPlan, 1, false});
  ExpectTold(DecideAll(LocalStoreRows{kPlan}), "STALE_OBJECT");
}

TEST_F(RemoteRoundTest, BooksAreKeptByEachRankAlone) {
  KeepEverywhere("p", 4);
  const LocalClonePlan clone{LocalPlanId(5), LocalPlanId(10)};
  EXPECT_TRUE(IsBookkeeping(clone));
  EXPECT_FALSE(IsBookkeeping(LocalBarrier{}));
  EXPECT_TRUE(KeepBooks(clone, RankId(0), plans_).status.ok());
  EXPECT_EQ(KeepBooks(clone, RankId(1), plans_).reason, "STALE_OBJECT");
  EXPECT_TRUE(KeepBooks(LocalReleasePlan{LocalPlanId(10)}, RankId(0), plans_).status.ok());
  EXPECT_EQ(plans_.Find(RankId(0), LocalPlanId(5))->name, "p");
  EXPECT_EQ(KeepBooks(LocalReleasePlan{LocalPlanId(10)}, RankId(0), plans_).reason, "STALE_OBJECT");
  EXPECT_TRUE(KeepBooks(LocalEmpty{}, RankId(2), plans_).status.ok());
}

TEST_F(RemoteRoundTest, ARankKeepsOnlySoManyPlans) {
  for (uint64_t id = 1; id <= kMaxRemotePlans; ++id) {
    plans_.Keep(RankId(1), LocalPlanId(id), {"p", 1});
  }
  const LocalDispatch dispatch{LocalPlanId(kMaxRemotePlans + 1), 1, false};
  const RemoteRound round = Decide({dispatch, dispatch, dispatch});
  ASSERT_TRUE(round.told[1].has_value());
  EXPECT_EQ(round.told[1]->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Told(round, 0), "DECLINED");
  const LocalDispatch again{LocalPlanId(kMaxRemotePlans), 1, false};
  EXPECT_TRUE(Decide({again, again, again}).operation.has_value());
}

}  // namespace
}  // namespace perigee
