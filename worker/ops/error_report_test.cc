#include "worker/ops/error_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const GroupView kGroup{
    "tenants/t/groups/g", Generation(7), RankId(1), {"workers/a", "workers/b", "workers/c"}};

ErrorRecord Record(AbortReason reason) {
  ErrorRecord record;
  record.generation = 7;
  record.sequence = 12;
  record.operation = static_cast<uint32_t>(Operation::kCombine);
  record.phase = static_cast<uint32_t>(Phase::kExit);
  record.reason = static_cast<uint32_t>(reason);
  record.rank = 1;
  record.awaited_rank = 2;
  record.expected = 50;
  record.seen = 49;
  return record;
}

TEST(ErrorReportTest, WellIsShort) {
  const v1::RankStatus report = ToRankStatus(kGroup, Failure());
  EXPECT_EQ(report.rank(), 1);
  EXPECT_EQ(report.worker(), "workers/b");
  EXPECT_EQ(report.code(), 0);
  EXPECT_EQ(report.reason(), "");
  EXPECT_FALSE(report.has_operation_error());
}

TEST(ErrorReportTest, EveryReasonHasItsWord) {
  const std::pair<AbortReason, const char*> words[] = {
      {AbortReason::kBadRoute, "BAD_ROUTE"},         {AbortReason::kDisagreement, "DISAGREEMENT"},
      {AbortReason::kCancelled, "CANCELLED"},        {AbortReason::kAborted, "GENERATION_ABORTED"},
      {AbortReason::kDeadline, "DEADLINE"},          {AbortReason::kOutOfStep, "OUT_OF_STEP"},
      {AbortReason::kStaleWeights, "STALE_WEIGHTS"}, {AbortReason::kDeclined, "DECLINED"},
      {static_cast<AbortReason>(77), "INTERNAL"}};
  for (const auto& [reason, word] : words) {
    const v1::RankStatus report =
        ToRankStatus(kGroup, {absl::UnavailableError("x"), Record(reason)});
    EXPECT_EQ(report.reason(), word);
  }
}

TEST(ErrorReportTest, TheRecordTravels) {
  const v1::RankStatus report =
      ToRankStatus(kGroup, {absl::DeadlineExceededError("late"), Record(AbortReason::kDeadline)});
  EXPECT_EQ(report.code(), 4);
  const v1::OperationError& error = report.operation_error();
  EXPECT_EQ(error.generation(), 7u);
  EXPECT_EQ(error.sequence(), 12u);
  EXPECT_EQ(error.operation(), "combine");
  EXPECT_EQ(error.phase(), "exit");
  EXPECT_EQ(error.awaited_rank(), 2);
  EXPECT_EQ(error.token(), -1);
  EXPECT_EQ(error.expected(), 50);
  EXPECT_EQ(error.seen(), 49);
}

struct Said {
  const char* by_the_data_path;
  int32_t awaited_rank;
  const char* reported;
};

// `rank` and `worker` of the report say who speaks, so the message does not.
TEST(ErrorReportTest, MessagesSayEverythingOnce) {
  const Said table[] = {
      {"rank 1, combine, sequence 12: rank 2 did not arrive within 10s; it is at the entry of "
       "sequence 12",
       2,
       "combine, sequence 12: rank 2 (workers/c) did not arrive within 10s; it is at the entry of "
       "sequence 12"},
      {"rank 1, barrier, sequence 3: rank 2 is lost: its stream broke", 2,
       "barrier, sequence 3: rank 2 (workers/c) is lost: its stream broke"},
      {"rank 1, barrier, sequence 3: rank 2 is lost: rank 2 (workers/c) was lost in generation 7: "
       "its stream broke",
       2, "barrier, sequence 3: rank 2 (workers/c) was lost in generation 7: its stream broke"},
      {"rank 1, barrier, sequence 3: aborted: the operator said so", -1,
       "barrier, sequence 3: aborted: the operator said so"},
      {"rank 1, barrier, sequence 3: aborted: generation 7 was fenced: rank 2 was late", -1,
       "barrier, sequence 3: generation 7 was fenced: rank 2 was late"},
      {"rank 1, dispatch, sequence 1: ranks 0, 2 declined", 0,
       "dispatch, sequence 1: ranks 0, 2 declined; rank 0 is workers/a"},
      {"rank 1, dispatch, sequence 1: rank 1 token 4 k 1: expert id 99", 1,
       "dispatch, sequence 1: rank 1 token 4 k 1: expert id 99"},
      {"rank 1, barrier, sequence 1: rank 21 or rank 2 is out of step", 2,
       "barrier, sequence 1: rank 21 or rank 2 (workers/c) is out of step"},
      {"said in other words", 2, "said in other words; rank 2 is workers/c"},
  };
  for (const Said& said : table) {
    ErrorRecord record = Record(AbortReason::kAborted);
    record.awaited_rank = said.awaited_rank;
    const v1::RankStatus report =
        ToRankStatus(kGroup, {absl::UnavailableError(said.by_the_data_path), record});
    EXPECT_EQ(report.message(), said.reported);
    EXPECT_EQ(report.rank(), 1);
    EXPECT_EQ(report.worker(), "workers/b");
  }
}

TEST(ErrorReportTest, ARankThatIsNoneOfTheGroupsIsOnlyANumber) {
  ErrorRecord record = Record(AbortReason::kOutOfStep);
  record.awaited_rank = 99;
  EXPECT_THAT(ToRankStatus(kGroup, {absl::InternalError("x"), record}).message(),
              Not(HasSubstr("99")));
  EXPECT_EQ(kGroup.Describe(99), "rank 99");
}

TEST(ErrorReportTest, WithoutARecordTheStatusHasTheWord) {
  const v1::RankStatus report = ToRankStatus(kGroup, {StaleObject("gone"), absl::nullopt});
  EXPECT_EQ(report.reason(), "STALE_OBJECT");
  EXPECT_EQ(report.message(), "gone");
  EXPECT_FALSE(report.has_operation_error());
  EXPECT_EQ(ToRankStatus(kGroup, {absl::InternalError("x"), absl::nullopt}).reason(), "INTERNAL");
}

}  // namespace
}  // namespace perigee
