#include "server/groups/group_machine.h"

#include <algorithm>
#include <string>
#include <variant>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/groups/group_harness.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using Kind = v1::WorkerCommand::CommandCase;

std::string Message(const CallResult& result) { return std::string(result.status.message()); }

TEST(GroupMachine, GivenReadyWorkersWhenCreatedThenEveryRankOpensASessionAndTheCallHasTheGroup) {
  GroupHarness group;
  group.Create(3);
  EXPECT_EQ(group.state(), v1::Group::PENDING);
  EXPECT_TRUE(group.sent.empty()) << "sent before a generation was taken";
  group.Do(GenerationTaken{Generation(41)});
  EXPECT_EQ(group.state(), v1::Group::FORMING);

  const auto opens = group.Take(Kind::kOpenSession);
  ASSERT_EQ(opens.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(opens[rank].worker, "workers/w" + std::to_string(rank));
    EXPECT_EQ(opens[rank].command.generation(), 41u);
    EXPECT_EQ(opens[rank].command.group(), GroupHarness::kGroup);
    EXPECT_EQ(opens[rank].command.open_session().rank(), rank);
    EXPECT_EQ(opens[rank].command.open_session().members_size(), 3);
    EXPECT_EQ(opens[rank].command.open_session().transport(), "nvlink");
  }
  group.Answer(opens[2]);
  group.Answer(opens[0]);
  EXPECT_TRUE(group.finished.empty());
  group.Answer(opens[1]);

  EXPECT_EQ(group.state(), v1::Group::ACTIVE);
  ASSERT_TRUE(group.finished.at(1).status.ok());
  const auto& answer = std::get<v1::Group>(group.finished.at(1).response);
  EXPECT_EQ(answer.state(), v1::Group::ACTIVE);
  EXPECT_EQ(answer.generation(), 41u);
  EXPECT_EQ(group.Seen<GenerationBegan>().size(), 1u);
  EXPECT_EQ(group.Seen<GenerationActivated>().size(), 1u);
}

TEST(GroupMachine, GivenARankThatRefusesWhenCreatedThenTheCallNamesItAndNothingStays) {
  GroupHarness group;
  group.Create(2);
  group.Do(GenerationTaken{Generation(1)});
  const auto opens = group.Take(Kind::kOpenSession);
  group.Answer(opens[0]);
  group.Answer(opens[1], Failed(absl::StatusCode::kInternal, "INTERNAL", "no socket"));
  EXPECT_EQ(group.state(), v1::Group::FENCED);
  EXPECT_EQ(group.Take(Kind::kAbortGeneration).size(), 2u);
  // Nobody answers the abort: closing is bounded all the same.
  EXPECT_TRUE(group.finished.empty());
  group.Wait(GroupTimes().forming_timeout);

  EXPECT_EQ(group.finished.at(1).status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Message(group.finished.at(1)), "rank 1 (workers/w1): no socket");
  ASSERT_TRUE(group.finished.at(1).error.has_value());
  EXPECT_EQ(group.finished.at(1).error->ranks_size(), 2);
  EXPECT_EQ(group.state(), v1::Group::CLOSED);
  EXPECT_TRUE(group.released);
  EXPECT_TRUE(group.removed);
}

TEST(GroupMachine, GivenARankThatIsSilentWhenCreatedThenTheCallFailsAfterTheFormingTimeout) {
  GroupHarness group;
  group.Create(2);
  group.Do(GenerationTaken{Generation(1)});
  group.Answer(group.Take(Kind::kOpenSession)[0]);
  EXPECT_EQ(group.machine.NextDeadline(), group.now.monotonic + GroupTimes().forming_timeout);
  group.Wait(GroupTimes().forming_timeout);
  group.AnswerAll(Kind::kAbortGeneration);
  EXPECT_EQ(group.finished.at(1).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(group.finished.at(1)), HasSubstr("rank 1 (workers/w1): did not answer"));
}

TEST(GroupMachine, GivenALostRankWhenNotYetActiveThenTheCallIsUnavailableNamingIt) {
  for (const bool has_generation : {false, true}) {
    GroupHarness group;
    group.Create(2);
    if (has_generation) group.Do(GenerationTaken{Generation(5)});
    group.Lose(1);
    group.AnswerAll(Kind::kAbortGeneration);
    EXPECT_EQ(group.finished.at(1).status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(Message(group.finished.at(1)),
              has_generation
                  ? "rank 1 (workers/w1) was lost in generation 5: its connection broke"
                  : "rank 1 (workers/w1) was lost before the group formed: its connection broke");
    EXPECT_TRUE(group.removed);
  }
}

TEST(GroupMachine, GivenNoGenerationWhenCreatedThenTheStoresErrorIsTheAnswer) {
  GroupHarness group;
  group.Create(2);
  group.Do(GenerationTaken{absl::UnavailableError("disk full")});
  EXPECT_EQ(Message(group.finished.at(1)), "disk full");
  EXPECT_FALSE(group.finished.at(1).error.has_value());
  EXPECT_TRUE(group.removed);
}

TEST(GroupMachine, GivenALostRankWhenActiveThenSurvivorsAreToldAtOnceAndTheGroupIsFenced) {
  GroupHarness group;
  group.Start(4);
  group.Lose(3);
  EXPECT_EQ(group.state(), v1::Group::FENCED);
  const auto aborts = group.Take(Kind::kAbortGeneration);
  ASSERT_EQ(aborts.size(), 3u);
  for (const SendCommand& abort : aborts) {
    EXPECT_NE(abort.rank, 3);
    EXPECT_EQ(abort.command.generation(), 1u);
    ASSERT_EQ(abort.command.abort_generation().lost_ranks_size(), 1);
    EXPECT_EQ(abort.command.abort_generation().lost_ranks(0), 3);
    EXPECT_EQ(abort.command.abort_generation().reason(),
              "rank 3 (workers/w3) was lost in generation 1: its connection broke");
  }
  const v1::Group described = group.machine.Describe();
  ASSERT_EQ(described.lost_ranks_size(), 1);
  EXPECT_EQ(described.lost_ranks(0), 3);
  EXPECT_THAT(described.state_reason(), HasSubstr("workers/w3"));
  EXPECT_EQ(group.buffer("b").state(), v1::Buffer::FENCED);
  EXPECT_EQ(group.buffer("b").generation(), 0u);
  EXPECT_EQ(group.generations_wanted, 0) << "there is no replacement yet";
}

TEST(GroupMachine, GivenAFencedGroupWhenAReplacementIsThereThenItFormsAgainAtAHigherGeneration) {
  GroupHarness group;
  group.Start(2);
  group.Lose(1);
  ASSERT_EQ(group.machine.ranks_wanted().size(), 1u);
  EXPECT_EQ(group.machine.ranks_wanted()[0].worker, "workers/w1");
  group.Do(MembersReplaced{{GroupHarness::MakeMember(1, 2)}});
  EXPECT_TRUE(group.machine.ranks_wanted().empty());
  EXPECT_EQ(group.generations_wanted, 0) << "rank 0 still holds the old generation's memory";
  group.AnswerAll(Kind::kAbortGeneration);
  EXPECT_EQ(group.generations_wanted, 1);
  EXPECT_EQ(group.state(), v1::Group::FENCED);
  group.Settle();

  EXPECT_EQ(group.state(), v1::Group::ACTIVE);
  EXPECT_EQ(group.machine.Describe().generation(), 2u);
  EXPECT_EQ(group.machine.Describe().members(1).incarnation(), "life2-of-1");
  EXPECT_EQ(group.machine.Describe().lost_ranks_size(), 0);
  EXPECT_EQ(group.buffer("b").state(), v1::Buffer::ACTIVE);
  EXPECT_EQ(group.buffer("b").generation(), 2u);
  EXPECT_EQ(group.Seen<GenerationEnded>().size(), 1u);
  EXPECT_EQ(group.Seen<GenerationActivated>().back().generation, Generation(2));
}

TEST(GroupMachine, GivenASurvivorThatNeverAnswersTheAbortThenFormingWaitsABoundedTime) {
  GroupHarness group;
  group.Start(2);
  group.Lose(1);
  group.Do(MembersReplaced{{GroupHarness::MakeMember(1, 2)}});
  group.Take(Kind::kAbortGeneration);
  group.Wait(GroupTimes().forming_timeout);
  EXPECT_EQ(group.generations_wanted, 1);
}

TEST(GroupMachine, GivenARankLostWhileANumberIsTakenThenTheNumberIsBurnt) {
  GroupHarness group;
  group.Start(2);
  group.Do(GenerationAborted{7, Generation(1), "maintenance"});
  EXPECT_TRUE(group.finished.at(7).status.ok());
  group.AnswerAll(Kind::kAbortGeneration);
  ASSERT_EQ(group.generations_wanted, 1);
  group.Lose(0);
  group.Do(GenerationTaken{Generation(2)});
  EXPECT_EQ(group.state(), v1::Group::FENCED);
  EXPECT_TRUE(group.sent.empty());
  group.generations_wanted = 0;
  group.Do(MembersReplaced{{GroupHarness::MakeMember(0, 2)}});
  ASSERT_EQ(group.generations_wanted, 1);
  group.last_generation = 2;
  group.Settle();
  EXPECT_EQ(group.machine.Describe().generation(), 3u);
}

TEST(GroupMachine, GivenAnAbortByRequestThenTheSameMembersFormAgainAndTheOldNumberIsRefused) {
  GroupHarness group;
  group.Start(2);
  group.Do(GenerationAborted{7, Generation(1), "maintenance"});
  EXPECT_EQ(group.machine.Describe().state_reason(), "generation 1 was aborted: maintenance");
  group.Settle();
  EXPECT_EQ(group.state(), v1::Group::ACTIVE);
  EXPECT_EQ(group.machine.Describe().generation(), 2u);
  group.Do(GenerationAborted{8, Generation(1), ""});
  EXPECT_EQ(group.finished.at(8).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(group.finished.at(8)), HasSubstr("generation 2 does"));
}

TEST(GroupMachine, GivenFormingAgainFailsThenItIsTriedAgainAfterAPauseThatGrows) {
  GroupHarness group;
  group.Start(2);
  group.Lose(1);
  group.AnswerAll(Kind::kAbortGeneration);
  group.Do(MembersReplaced{{GroupHarness::MakeMember(1, 2)}});
  uint64_t generation = 1;
  for (const absl::Duration pause : {absl::Seconds(1), absl::Seconds(2), absl::Seconds(4)}) {
    ASSERT_EQ(std::exchange(group.generations_wanted, 0), 1);
    group.Do(GenerationTaken{Generation(++generation)});
    const auto opens = group.Take(Kind::kOpenSession);
    group.Answer(opens[0], Failed(absl::StatusCode::kInternal, "INTERNAL", "busy"));
    group.Answer(opens[1]);
    EXPECT_EQ(group.state(), v1::Group::FENCED);
    EXPECT_THAT(group.machine.Describe().state_reason(), HasSubstr("rank 0 (workers/w0): busy"));
    group.AnswerAll(Kind::kAbortGeneration);
    EXPECT_EQ(group.machine.NextDeadline(), group.now.monotonic + pause);
    group.Wait(pause - absl::Milliseconds(1));
    EXPECT_EQ(group.generations_wanted, 0);
    group.Wait(absl::Milliseconds(1));
  }
  group.last_generation = generation;
  group.Settle();
  EXPECT_EQ(group.state(), v1::Group::ACTIVE);
}

TEST(GroupMachine, GivenALateAnswerOfAnEndedGenerationThenItChangesNothing) {
  GroupHarness group;
  group.Start(2);
  group.Do(GenerationAborted{7, Generation(1), ""});
  group.AnswerAll(Kind::kAbortGeneration);
  group.Do(GenerationTaken{Generation(2)});
  const auto opens = group.Take(Kind::kOpenSession);
  group.Lose(1);
  group.Do(MembersReplaced{{GroupHarness::MakeMember(1, 2)}});
  group.Answer(opens[0]);
  group.Answer(opens[1]);
  EXPECT_EQ(group.state(), v1::Group::FENCED);
}

TEST(GroupMachine, GivenAnUnknownIncarnationIsLostThenNothingHappens) {
  GroupHarness group;
  group.Start(2);
  group.Lose(1, /*life=*/9);
  EXPECT_EQ(group.state(), v1::Group::ACTIVE);
}

TEST(GroupMachine, GivenAnActiveGroupWhenDrainedThenSessionsCloseAndTheCallsHaveTheClosedGroup) {
  GroupHarness group;
  group.Start(2);
  group.Do(GroupDrained{7, false});
  group.Do(GroupDrained{8, false});
  EXPECT_EQ(group.state(), v1::Group::DRAINING);
  const auto closes = group.Take(Kind::kCloseSession);
  ASSERT_EQ(closes.size(), 2u);
  group.Answer(closes[0]);
  EXPECT_FALSE(group.released);
  group.Answer(closes[1]);
  EXPECT_EQ(group.state(), v1::Group::CLOSED);
  EXPECT_TRUE(group.released);
  EXPECT_FALSE(group.removed);
  for (const CallId call : {7, 8}) {
    EXPECT_EQ(std::get<v1::Group>(group.finished.at(call).response).state(), v1::Group::CLOSED);
  }
  // Draining it again, then deleting it.
  group.Do(GroupDrained{9, false});
  EXPECT_TRUE(group.finished.at(9).status.ok());
  group.Do(GroupDrained{10, true});
  EXPECT_TRUE(group.finished.at(10).status.ok());
  EXPECT_TRUE(group.removed);
}

TEST(GroupMachine, GivenASessionThatDoesNotCloseWhenDrainedThenItIsAborted) {
  GroupHarness group;
  group.Start(2);
  group.Do(GroupDrained{7, true});
  const auto closes = group.Take(Kind::kCloseSession);
  group.Answer(closes[0]);
  group.Wait(GroupTimes().forming_timeout);
  EXPECT_EQ(group.state(), v1::Group::CLOSED);
  const auto aborts = group.Take(Kind::kAbortGeneration);
  ASSERT_EQ(aborts.size(), 1u);
  EXPECT_EQ(aborts[0].rank, 1);
  EXPECT_TRUE(group.finished.at(7).status.ok());
  EXPECT_TRUE(group.removed);
}

TEST(GroupMachine, GivenADrainingGroupWhenProgramsOrBuffersAreAskedForThenTheyAreRefused) {
  GroupHarness group;
  group.Start(2);
  group.Submit(5);
  group.Do(GroupDrained{7, false});
  group.Submit(8);
  group.Do(group.MakeBuffer("c", 9));
  for (const CallId call : {8, 9}) {
    EXPECT_EQ(group.finished.at(call).status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(group.finished.at(call)), HasSubstr("is DRAINING, expected ACTIVE"));
  }
  EXPECT_TRUE(group.Take(Kind::kCloseSession).empty()) << "a program still runs";
  group.AnswerAll(Kind::kExecuteProgram);
  EXPECT_TRUE(group.finished.at(5).status.ok());
  EXPECT_EQ(group.Take(Kind::kCloseSession).size(), 2u);
}

TEST(GroupMachine, GivenAProgramThatRunsOnWhenDrainingTakesTooLongThenItIsCancelled) {
  GroupHarness group;
  group.Start(2);
  group.Submit(5);
  group.Submit(6);
  group.Do(GroupDrained{7, false});
  EXPECT_EQ(group.machine.NextDeadline(), group.now.monotonic + GroupTimes().drain_timeout);
  group.Wait(GroupTimes().drain_timeout);
  EXPECT_EQ(group.Take(Kind::kCancelProgram).size(), 2u);
  EXPECT_EQ(group.finished.at(6).status.code(), absl::StatusCode::kAborted);
  // It ignores the cancel too: the generation is ended over its head.
  group.Take(Kind::kExecuteProgram);
  group.Wait(GroupTimes().drain_timeout);
  EXPECT_EQ(group.Take(Kind::kAbortGeneration).size(), 2u);
  group.Wait(GroupTimes().fence_report_timeout);
  EXPECT_EQ(group.finished.at(5).status.code(), absl::StatusCode::kUnavailable);
  group.Wait(GroupTimes().forming_timeout);
  EXPECT_EQ(group.state(), v1::Group::CLOSED);
  EXPECT_TRUE(group.finished.at(7).status.ok());
}

TEST(GroupMachine, GivenARankLostWhileDrainingThenTheGroupClosesAndDoesNotFormAgain) {
  GroupHarness group;
  group.Start(2);
  group.Submit(5);
  group.Do(GroupDrained{7, false});
  group.Lose(1);
  EXPECT_EQ(group.state(), v1::Group::DRAINING);
  EXPECT_TRUE(group.machine.ranks_wanted().empty());
  group.Take(Kind::kExecuteProgram);
  group.AnswerAll(Kind::kAbortGeneration);
  group.Wait(GroupTimes().fence_report_timeout);
  EXPECT_EQ(group.finished.at(5).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(group.state(), v1::Group::CLOSED);
  EXPECT_TRUE(group.finished.at(7).status.ok());
}

TEST(GroupMachine, GivenAGroupThatFormsWhenDrainedThenItsCreationFailsAndItCloses) {
  for (const bool has_generation : {false, true}) {
    GroupHarness group;
    group.Create(2);
    if (has_generation) group.Do(GenerationTaken{Generation(1)});
    group.Do(GroupDrained{7, true});
    group.AnswerAll(Kind::kAbortGeneration);
    EXPECT_FALSE(group.finished.at(1).status.ok());
    EXPECT_THAT(Message(group.finished.at(1)), HasSubstr("drained while it was forming"));
    EXPECT_TRUE(group.finished.at(7).status.ok());
    EXPECT_TRUE(group.removed);
    group.Do(GenerationTaken{Generation(2)});
    EXPECT_EQ(group.state(), v1::Group::CLOSED);
  }
}

TEST(GroupMachine, GivenAFencedGroupWhenDrainedThenItCloses) {
  GroupHarness group;
  group.Start(2);
  group.Lose(1);
  group.AnswerAll(Kind::kAbortGeneration);
  group.Do(GroupDrained{7, false});
  EXPECT_EQ(group.state(), v1::Group::CLOSED);
  EXPECT_TRUE(group.released);
}

TEST(GroupMachine, VersionsGoUpWithEveryChange) {
  GroupHarness group;
  group.Start(2);
  const uint64_t before = group.machine.Describe().version();
  group.Lose(1);
  group.Do(MembersReplaced{{GroupHarness::MakeMember(1, 2)}});
  group.Settle();
  EXPECT_EQ(group.machine.Describe().version(), before + group.Seen<GroupChanged>().size());
  EXPECT_GE(group.Seen<GroupChanged>().size(), 4u);
}

}  // namespace
}  // namespace perigee
