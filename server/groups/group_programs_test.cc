#include "server/groups/group_programs.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/groups/group_harness.h"
#include "server/groups/lost_command.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using Kind = v1::WorkerCommand::CommandCase;

std::string Message(const CallResult& result) { return std::string(result.status.message()); }

v1::ProgramProgress Progress(uint64_t program, uint64_t last_sequence, int iterations = 1) {
  v1::ProgramProgress progress;
  progress.set_program_id(program);
  progress.set_last_sequence(last_sequence);
  progress.set_iterations_done(iterations);
  return progress;
}

TEST(GroupPrograms, GivenEveryRankEndsWellThenTheLastMessageIsCompleteWithAllRanks) {
  GroupHarness group;
  group.Start(2);
  group.Submit(5, "b", 1);
  ASSERT_EQ(group.messages[5].size(), 1u) << "id and generation are told at the start";
  EXPECT_EQ(group.messages[5][0].program_id(), 1u);
  EXPECT_EQ(group.messages[5][0].generation(), 1u);
  const auto executes = group.Take(Kind::kExecuteProgram);
  ASSERT_EQ(executes.size(), 2u);
  EXPECT_EQ(executes[0].command.execute_program().first_sequence(), 1u);
  EXPECT_EQ(executes[0].command.execute_program().program_id(), 1u);

  group.Do(ProgressReported{"workers/w1", Progress(1, 3, 7)});
  ASSERT_EQ(group.messages[5].size(), 2u);
  EXPECT_EQ(group.messages[5][1].progress(0).rank(), 1);
  EXPECT_EQ(group.messages[5][1].progress(0).iterations_done(), 7);
  group.Do(ProgressReported{"workers/w1", Progress(9, 3)});
  group.Do(ProgressReported{"workers/stranger", Progress(1, 3)});
  EXPECT_EQ(group.messages[5].size(), 2u);

  group.Answer(executes[1], {}, Progress(1, 8));
  EXPECT_EQ(group.finished.count(5), 0u);
  group.Answer(executes[0], {}, Progress(1, 9));
  EXPECT_TRUE(group.finished.at(5).status.ok());
  const auto& last = group.messages[5].back();
  EXPECT_TRUE(last.complete());
  ASSERT_EQ(last.progress_size(), 2);
  EXPECT_EQ(last.progress(0).rank(), 0);
  EXPECT_EQ(last.progress(1).last_sequence(), 8u);

  group.Submit(6);
  const auto next = group.Take(Kind::kExecuteProgram);
  EXPECT_EQ(next[0].command.execute_program().program_id(), 2u);
  EXPECT_EQ(next[1].command.execute_program().first_sequence(), 10u) << "1 + the highest used";
}

TEST(GroupPrograms, ABufferShowsTheLastPathThatACallerHasTold) {
  GroupHarness group;
  group.Start(1);
  const auto shown = [&] { return group.buffer("b").path_choice().path(); };
  const auto submit = [&](CallId call, absl::optional<v1::PathChoice> choice, uint64_t generation) {
    ProgramSubmitted event{call, GroupHarness::BufferNamed("b"), Generation(generation), {}};
    event.program.add_operations()->mutable_barrier();
    event.path_choice = std::move(choice);
    group.Do(event);
  };
  v1::PathChoice choice;
  choice.set_path("pull");
  submit(5, choice, 0);
  EXPECT_EQ(shown(), "pull");
  submit(6, absl::nullopt, 0);
  EXPECT_EQ(shown(), "pull") << "a program of which nobody tells";
  choice.set_path("direct");
  submit(7, choice, 99);
  EXPECT_EQ(shown(), "pull") << "refused";
  submit(8, choice, 0);
  EXPECT_EQ(shown(), "direct");
}

TEST(GroupPrograms, SequencesAreCountedPerBufferAndBeginAgainWithAGeneration) {
  GroupHarness group;
  group.Start(1);
  group.Do(group.MakeBuffer("c", 3));
  group.Settle();
  group.Submit(5, "b");
  group.Answer(group.Take(Kind::kExecuteProgram)[0], {}, Progress(1, 4));
  group.Submit(6, "c");
  EXPECT_EQ(group.sent.back().command.execute_program().first_sequence(), 1u);
  group.Answer(group.Take(Kind::kExecuteProgram)[0], {}, Progress(2, 2));
  group.Do(GenerationAborted{7, Generation(1), ""});
  group.Settle();
  group.Submit(8, "b");
  EXPECT_EQ(group.sent.back().command.execute_program().first_sequence(), 1u);
  EXPECT_EQ(group.sent.back().command.execute_program().program_id(), 3u);
}

TEST(GroupPrograms, ProgramsRunOneAfterTheOther) {
  GroupHarness group;
  group.Start(2);
  group.Submit(5);
  group.Submit(6);
  auto first = group.Take(Kind::kExecuteProgram);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_TRUE(group.messages[6].empty());
  group.Answer(first[0]);
  group.Answer(first[1], Failed(absl::StatusCode::kInvalidArgument, "BAD_ROUTE", "id 99"));
  EXPECT_EQ(group.finished.at(5).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(group.state(), v1::Group::ACTIVE) << "all ranks left together";
  EXPECT_EQ(group.Take(Kind::kExecuteProgram).size(), 2u);
}

TEST(GroupPrograms, RefusalsNameWhatLives) {
  GroupHarness group;
  group.Start(2);
  group.Submit(5, "b", 9);
  EXPECT_EQ(group.finished.at(5).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(group.finished.at(5)), HasSubstr("generation 9 was asked for, generation 1"));
  group.Submit(6, "nothing");
  EXPECT_EQ(group.finished.at(6).status.code(), absl::StatusCode::kNotFound);
  group.Do(ProgramSubmitted{7, GroupHarness::BufferNamed("b"), Generation(0), {}});
  EXPECT_EQ(group.finished.at(7).status.code(), absl::StatusCode::kInvalidArgument);
  group.Lose(0);
  group.Submit(8);
  EXPECT_EQ(group.finished.at(8).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(group.finished.at(8)), HasSubstr("is FENCED, expected ACTIVE: rank 0"));
}

TEST(GroupPrograms, TheQueueIsBounded) {
  GroupHarness group;
  group.Start(1);
  for (CallId call = 100; call <= 100 + GroupPrograms::kMaxWaiting; ++call) group.Submit(call);
  EXPECT_TRUE(group.finished.find(100 + GroupPrograms::kMaxWaiting) == group.finished.end());
  group.Submit(99);
  EXPECT_EQ(group.finished.at(99).status.code(), absl::StatusCode::kResourceExhausted);
}

TEST(GroupPrograms, CancellingStopsTheOneThatRunsAndForgetsTheOneThatWaits) {
  GroupHarness group;
  group.Start(2);
  group.Submit(5);
  group.Submit(6);
  group.Do(ProgramCancelled{6});
  EXPECT_EQ(group.finished.at(6).status.code(), absl::StatusCode::kCancelled);
  const auto executes = group.Take(Kind::kExecuteProgram);
  group.Answer(executes[0]);
  group.Do(ProgramCancelled{5});
  group.Do(ProgramCancelled{5});
  const auto cancels = group.Take(Kind::kCancelProgram);
  ASSERT_EQ(cancels.size(), 1u) << "rank 0 has ended";
  EXPECT_EQ(cancels[0].command.cancel_program().program_id(), 1u);
  group.Answer(executes[1], Failed(absl::StatusCode::kCancelled, "CANCELLED", "cancelled"));
  EXPECT_EQ(group.finished.at(5).status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(group.state(), v1::Group::ACTIVE);
  group.Do(ProgramCancelled{5});
  EXPECT_TRUE(group.sent.empty());
}

TEST(GroupPrograms, GivenACancelledProgramThatDoesNotStopThenTheGenerationEnds) {
  GroupHarness group;
  group.Start(2);
  group.Submit(5);
  group.Do(ProgramCancelled{5});
  group.Wait(GroupTimes().drain_timeout);
  EXPECT_EQ(group.state(), v1::Group::FENCED);
  EXPECT_EQ(group.Take(Kind::kAbortGeneration).size(), 2u);
  group.Wait(GroupTimes().fence_report_timeout);
  EXPECT_EQ(group.finished.at(5).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(group.finished.at(5)), HasSubstr("program 1 did not stop within 30s"));
}

TEST(GroupPrograms, GivenALostRankThenEveryRankHasItsWordAndWhoWaitsEndsAtOnce) {
  GroupHarness group;
  group.Start(4);
  group.Submit(5);
  group.Submit(6);
  const auto executes = group.Take(Kind::kExecuteProgram);
  group.Lose(3);
  EXPECT_EQ(group.finished.at(6).status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(group.finished.at(6).error->ranks_size(), 4);
  EXPECT_EQ(group.finished.count(5), 0u) << "the survivors have not spoken";
  EXPECT_TRUE(group.machine.ranks_wanted().empty());
  for (int rank = 0; rank < 3; ++rank) {
    group.Answer(executes[rank],
                 Failed(absl::StatusCode::kUnavailable, "GENERATION_ABORTED", "left"));
  }
  const CallResult& result = group.finished.at(5);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Message(result), "rank 3 (workers/w3) was lost in generation 1: its connection broke");
  ASSERT_EQ(result.error->ranks_size(), 4);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(result.error->ranks(rank).reason(), "GENERATION_ABORTED");
    EXPECT_THAT(result.error->ranks(rank).message(), HasSubstr("rank 3 (workers/w3)"));
  }
  EXPECT_EQ(result.error->ranks(3).reason(), "RANK_LOST");
  EXPECT_EQ(group.machine.ranks_wanted().size(), 1u);
}

// Nobody knows whether the rank runs the program, and it is not asked a second time.
TEST(GroupPrograms, GivenALostCommandThenTheGenerationEndsAndTheNextBegins) {
  GroupHarness group;
  group.Start(2);
  group.Submit(5);
  const auto executes = group.Take(Kind::kExecuteProgram);
  group.Answer(executes[1], LostCommandResult("execute_program").status());
  EXPECT_EQ(group.state(), v1::Group::FENCED);
  EXPECT_THAT(group.machine.Describe().state_reason(),
              HasSubstr("rank 1 (workers/w1): its command stream broke"));
  EXPECT_TRUE(group.machine.Describe().lost_ranks().empty()) << "the worker is there";
  group.Answer(executes[0], Failed(absl::StatusCode::kUnavailable, "GENERATION_ABORTED", ""));
  EXPECT_TRUE(absl::IsUnavailable(group.finished.at(5).status));
  EXPECT_EQ(Message(group.finished.at(5)),
            "rank 1 (workers/w1): its command stream broke before it answered execute_program");
  group.Settle();
  EXPECT_EQ(group.state(), v1::Group::ACTIVE);
  EXPECT_EQ(group.machine.Describe().generation(), 2u);
  EXPECT_TRUE(group.Take(Kind::kExecuteProgram).empty());
}

TEST(GroupPrograms, GivenSilentSurvivorsThenTheCallEndsAfterTheFenceReportTimeout) {
  GroupHarness group;
  group.Start(3);
  group.Submit(5);
  group.Lose(2);
  group.Lose(1);
  EXPECT_EQ(group.machine.NextDeadline(), group.now.monotonic + GroupTimes().fence_report_timeout);
  group.Wait(GroupTimes().fence_report_timeout);
  const CallResult& result = group.finished.at(5);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(result), HasSubstr("rank 1 (workers/w1)"));
  EXPECT_THAT(Message(result), HasSubstr("rank 2 (workers/w2)"));
  EXPECT_EQ(result.error->ranks(0).reason(), "GENERATION_ABORTED");
  EXPECT_THAT(result.error->ranks(0).message(), HasSubstr("no report within 700ms"));
  EXPECT_EQ(result.error->lost_ranks_size(), 2);
}

TEST(GroupPrograms, GivenADeadlineThenTheGenerationEndsAndTheCallSaysWhoWaited) {
  for (const char* reason : {"DEADLINE", "OUT_OF_STEP", "GENERATION_ABORTED"}) {
    GroupHarness group;
    group.Start(2);
    group.Submit(5);
    group.Submit(6);
    const auto executes = group.Take(Kind::kExecuteProgram);
    group.Answer(executes[0],
                 Failed(absl::StatusCode::kDeadlineExceeded, reason, "rank 1 did not arrive"));
    EXPECT_EQ(group.state(), v1::Group::FENCED) << reason;
    EXPECT_EQ(group.Take(Kind::kAbortGeneration).size(), 2u);
    EXPECT_TRUE(group.Take(Kind::kExecuteProgram).empty()) << "nothing starts in it any more";
    EXPECT_EQ(group.finished.at(6).status.code(), absl::StatusCode::kUnavailable);
    group.Answer(executes[1], Failed(absl::StatusCode::kUnavailable, "GENERATION_ABORTED", ""));
    const bool explained = std::string(reason) != "GENERATION_ABORTED";
    EXPECT_EQ(group.finished.at(5).status.code(),
              explained ? absl::StatusCode::kDeadlineExceeded : absl::StatusCode::kUnavailable);
    EXPECT_THAT(Message(group.finished.at(5)), HasSubstr(explained ? "rank 0 (workers/w0)" : ""));
  }
}

TEST(GroupPrograms, GivenEveryRankMissedTheDeadlineThenTheNextProgramDoesNotStart) {
  GroupHarness group;
  group.Start(2);
  group.Submit(5);
  group.Submit(6);
  const auto executes = group.Take(Kind::kExecuteProgram);
  group.Answer(executes[0]);
  group.Answer(executes[1], Failed(absl::StatusCode::kDeadlineExceeded, "DEADLINE", "late"));
  EXPECT_EQ(group.finished.at(5).status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(group.Take(Kind::kExecuteProgram).empty());
  EXPECT_EQ(group.finished.at(6).status.code(), absl::StatusCode::kUnavailable);
  group.Settle();
  EXPECT_EQ(group.machine.Describe().generation(), 2u);
}

TEST(GroupPrograms, FailuresThatLeaveTheRanksInStepKeepTheGeneration) {
  for (const char* reason : {"BAD_ROUTE", "DISAGREEMENT", "CANCELLED", "DECLINED", "STALE_WEIGHTS",
                             "STALE_OBJECT", "INVALID_PROGRAM", "INTERNAL"}) {
    GroupHarness group;
    group.Start(2);
    group.Submit(5);
    const auto executes = group.Take(Kind::kExecuteProgram);
    group.Answer(executes[0], Failed(absl::StatusCode::kAborted, reason, "x"), Progress(1, 6));
    group.Answer(executes[1], Failed(absl::StatusCode::kAborted, reason, "x"), Progress(1, 6));
    EXPECT_EQ(group.state(), v1::Group::ACTIVE) << reason;
    EXPECT_EQ(group.finished.at(5).status.code(), absl::StatusCode::kAborted);
    group.Submit(7);
    EXPECT_EQ(group.sent.back().command.execute_program().first_sequence(), 7u);
  }
}

}  // namespace
}  // namespace perigee
