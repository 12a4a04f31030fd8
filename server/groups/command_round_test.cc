#include "server/groups/command_round.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::CommandResult Result(int32_t code) {
  v1::CommandResult result;
  result.mutable_status()->set_code(code);
  return result;
}

TEST(CommandRound, AnEmptyRoundIsComplete) {
  const CommandRound round;
  EXPECT_TRUE(round.complete());
  EXPECT_TRUE(round.all_ok());
  EXPECT_EQ(round.deadline(), absl::InfiniteDuration());
}

TEST(CommandRound, IsCompleteWhenEveryRankHasAnsweredOnce) {
  CommandRound round(absl::Seconds(5));
  round.Expect(0, 10);
  round.Expect(2, 11);
  EXPECT_EQ(round.deadline(), absl::Seconds(5));
  EXPECT_TRUE(round.Answer(11, Result(0)));
  EXPECT_FALSE(round.Answer(11, Result(3)));
  EXPECT_FALSE(round.Answer(12, Result(0)));
  EXPECT_FALSE(round.complete());
  EXPECT_THAT(round.unanswered(), ElementsAre(0));
  EXPECT_EQ(round.result(0), nullptr);
  EXPECT_EQ(round.statuses().size(), 1u);
  EXPECT_TRUE(round.Answer(10, Result(0)));
  EXPECT_TRUE(round.complete());
  EXPECT_TRUE(round.all_ok());
  EXPECT_EQ(round.deadline(), absl::InfiniteDuration());
  EXPECT_EQ(round.result(2)->status().rank(), 2);
  EXPECT_TRUE(round.asked(2));
  EXPECT_FALSE(round.asked(1));
}

TEST(CommandRound, TimeOutNamesWhatWasAwaitedAndKeepsWhatWasAnswered) {
  CommandRound round(absl::Seconds(5));
  round.Expect(0, 10);
  round.Expect(1, 11);
  EXPECT_TRUE(round.Answer(10, Result(0)));
  round.TimeOut("open_session", absl::Seconds(30));
  ASSERT_TRUE(round.complete());
  EXPECT_FALSE(round.all_ok());
  const auto statuses = round.statuses();
  ASSERT_EQ(statuses.size(), 2u);
  EXPECT_EQ(statuses[0].code(), 0);
  EXPECT_EQ(statuses[1].rank(), 1);
  EXPECT_EQ(statuses[1].reason(), "DEADLINE");
  EXPECT_THAT(statuses[1].message(), HasSubstr("did not answer open_session within 30s"));
  EXPECT_FALSE(round.Answer(11, Result(0)));
}

}  // namespace
}  // namespace perigee
