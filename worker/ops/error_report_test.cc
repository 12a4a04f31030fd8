#include "worker/ops/error_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/session/failure_reason.h"

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

TEST(ErrorReportTest, MessagesNameRanksWithTheirWorkers) {
  v1::RankStatus report =
      ToRankStatus(kGroup, {absl::DeadlineExceededError("late"), Record(AbortReason::kDeadline)});
  EXPECT_THAT(report.message(), HasSubstr("rank 1 (workers/b)"));
  EXPECT_THAT(report.message(), HasSubstr("rank 2 is workers/c"));
  report = ToRankStatus(kGroup, {absl::UnavailableError("rank 2 (workers/c) was lost"),
                                 Record(AbortReason::kAborted)});
  EXPECT_THAT(report.message(), Not(HasSubstr("rank 2 is")));
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
  EXPECT_FALSE(report.has_operation_error());
  EXPECT_EQ(ToRankStatus(kGroup, {absl::InternalError("x"), absl::nullopt}).reason(), "INTERNAL");
}

}  // namespace
}  // namespace perigee
