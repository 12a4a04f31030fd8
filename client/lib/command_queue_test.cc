#include "client/lib/command_queue.h"

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

TEST(CommandQueueTest, CommandsCompleteInTheirOrder) {
  CommandQueue queue;
  EXPECT_EQ(queue.head(), nullptr);
  EXPECT_EQ(*queue.Submit(LocalBarrier{}), 0u);
  EXPECT_EQ(*queue.Submit(LocalEmpty{}), 1u);
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
  for (uint32_t i = 0; i < kCommandSlots; ++i) ASSERT_EQ(*queue.Submit(LocalEmpty{}), i);
  EXPECT_EQ(queue.Submit(LocalEmpty{}).status().code(), absl::StatusCode::kResourceExhausted);
  queue.Complete(Timed(1));
  EXPECT_EQ(*queue.Submit(LocalEmpty{}), kCommandSlots);
}

TEST(CommandQueueTest, ACompletionIsKeptUntilItsPlaceIsUsedAgain) {
  CommandQueue queue;
  for (uint32_t i = 0; i <= kCommandSlots; ++i) {
    ASSERT_TRUE(queue.Find(0).ok() || i == 0);
    ASSERT_TRUE(queue.Submit(LocalEmpty{}).ok());
    queue.Complete(Timed(i));
  }
  EXPECT_EQ(queue.Find(0).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ((*queue.Find(1))->duration, absl::Nanoseconds(1));
  EXPECT_EQ((*queue.Find(kCommandSlots))->duration, absl::Nanoseconds(kCommandSlots));
}

TEST(CommandQueueTest, AfterItsEndOnlyWhatHadCompletedIsThere) {
  CommandQueue queue;
  ASSERT_TRUE(queue.Submit(LocalEmpty{}).ok());
  ASSERT_TRUE(queue.Submit(LocalBarrier{}).ok());
  queue.Complete(Timed(1));
  queue.End(Lost());
  LocalCompletion later = Lost();
  later.status = absl::CancelledError("later");
  queue.End(later);
  EXPECT_TRUE(queue.Find(0)->has_value());
  EXPECT_EQ(queue.Find(1).status(), Lost().status);
  EXPECT_EQ(queue.Submit(LocalEmpty{}).status(), Lost().status);
  EXPECT_EQ(queue.head(), nullptr);
  EXPECT_EQ(queue.end()->lost, Lost().lost);
}

}  // namespace
}  // namespace perigee
