#include "client/lib/command_queue.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

LocalCompletion Timed(int64_t ns) {
  LocalCompletion completion;
  completion.duration = absl::Nanoseconds(ns);
  return completion;
}

LocalCompletion Lost() {
  LocalCompletion why;
  why.status = absl::UnavailableError("rank 1 was lost");
  why.lost = {1};
  return why;
}

absl::StatusOr<uint64_t> Submit(CommandQueue& queue, const LocalOperation& operation) {
  return queue.SubmitProgram(absl::MakeConstSpan(&operation, 1));
}

TEST(CommandQueueTest, CommandsCompleteInTheirOrder) {
  CommandQueue queue;
  EXPECT_EQ(queue.head(), nullptr);
  EXPECT_EQ(*Submit(queue, LocalBarrier{}), 0u);
  EXPECT_EQ(*Submit(queue, LocalEmpty{}), 1u);
  ASSERT_NE(queue.head(), nullptr);
  EXPECT_EQ(KindOf(*queue.head()), CommandKind::kBarrier);
  EXPECT_FALSE(queue.Find(0)->has_value());
  queue.Complete(Timed(7));
  EXPECT_EQ((*queue.Find(0))->duration, absl::Nanoseconds(7));
  EXPECT_EQ((*queue.Find(0))->kind, static_cast<uint32_t>(CommandKind::kBarrier));
  EXPECT_EQ(KindOf(*queue.head()), CommandKind::kEmpty);
  queue.Complete(Timed(8));
  EXPECT_EQ((*queue.Find(1))->position, 1u);
  EXPECT_EQ(queue.head(), nullptr);
  EXPECT_EQ(queue.Find(2).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(CommandQueueTest, AsManyAreUnderWayAsARingHolds) {
  CommandQueue queue;
  for (uint32_t i = 0; i < kCommandSlots; ++i) ASSERT_EQ(*Submit(queue, LocalEmpty{}), i);
  EXPECT_EQ(Submit(queue, LocalEmpty{}).status().code(), absl::StatusCode::kResourceExhausted);
  queue.Complete(Timed(1));
  EXPECT_EQ(*Submit(queue, LocalEmpty{}), kCommandSlots);
}

TEST(CommandQueueTest, AProgramIsTakenWholeOrNotAtAll) {
  CommandQueue queue;
  EXPECT_EQ(queue.SubmitProgram({}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*queue.SubmitProgram(std::vector<LocalOperation>(kCommandSlots - 2)), 0u);
  const std::vector<LocalOperation> program = {LocalBarrier{}, LocalEmpty{}, LocalBarrier{}};
  const absl::Status full = queue.SubmitProgram(program).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), ::testing::HasSubstr("wait for command 0"));
  EXPECT_EQ(queue.Find(kCommandSlots - 2).status().code(), absl::StatusCode::kOutOfRange);
  queue.Complete(Timed(1));
  EXPECT_EQ(*queue.SubmitProgram(program), kCommandSlots - 2);
  for (uint32_t i = 1; i < kCommandSlots - 2; ++i) queue.Complete(Timed(1));
  for (const LocalOperation& operation : program) {
    EXPECT_EQ(*queue.head(), operation);
    queue.Complete(Timed(1));
  }
  EXPECT_EQ(queue.head(), nullptr);
}

TEST(CommandQueueTest, ACompletionIsKeptUntilItsPlaceIsUsedAgain) {
  CommandQueue queue;
  for (uint32_t i = 0; i <= kCommandSlots; ++i) {
    ASSERT_TRUE(queue.Find(0).ok() || i == 0);
    ASSERT_TRUE(Submit(queue, LocalEmpty{}).ok());
    queue.Complete(Timed(i));
  }
  EXPECT_EQ(queue.Find(0).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ((*queue.Find(1))->duration, absl::Nanoseconds(1));
  EXPECT_EQ((*queue.Find(kCommandSlots))->duration, absl::Nanoseconds(kCommandSlots));
}

TEST(CommandQueueTest, AfterItsEndOnlyWhatHadCompletedIsThere) {
  CommandQueue queue;
  ASSERT_TRUE(Submit(queue, LocalEmpty{}).ok());
  ASSERT_TRUE(Submit(queue, LocalBarrier{}).ok());
  queue.Complete(Timed(1));
  queue.End(Lost());
  LocalCompletion later = Lost();
  later.status = absl::CancelledError("later");
  queue.End(later);
  EXPECT_TRUE(queue.Find(0)->has_value());
  EXPECT_EQ(queue.Find(1).status(), Lost().status);
  EXPECT_EQ(Submit(queue, LocalEmpty{}).status(), Lost().status);
  EXPECT_EQ(queue.head(), nullptr);
  EXPECT_EQ(queue.end()->lost, Lost().lost);
}

}  // namespace
}  // namespace perigee
