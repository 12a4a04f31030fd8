#include "server/rpc/mailbox.h"

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(FifoMailbox, KeepsOrderAndItsLimit) {
  FifoMailbox<int, 3> box;
  EXPECT_FALSE(box.Pop().has_value());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(box.Push(i));
  EXPECT_FALSE(box.Push(3));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*box.Pop(), i);
  EXPECT_FALSE(box.Pop().has_value());
  EXPECT_TRUE(box.Push(4));
  box.Clear();
  EXPECT_FALSE(box.Pop().has_value());
}

TEST(LatestMailbox, KeepsTheLatest) {
  LatestMailbox<int> box;
  EXPECT_FALSE(box.Pop().has_value());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(box.Push(i));
  EXPECT_EQ(*box.Pop(), 2);
  EXPECT_FALSE(box.Pop().has_value());
}

v1::ExecuteProgramResponse Message(int rank, int iterations, bool complete = false) {
  v1::ExecuteProgramResponse message;
  message.set_program_id(5);
  message.set_generation(7);
  message.set_complete(complete);
  auto* progress = message.add_progress();
  progress->set_rank(rank);
  progress->set_iterations_done(iterations);
  return message;
}

TEST(ProgressMailbox, KeepsTheLatestOfEachRank) {
  ProgressMailbox box;
  EXPECT_FALSE(box.Pop().has_value());
  box.Push(Message(1, 10));
  box.Push(Message(0, 11));
  box.Push(Message(1, 12));
  const auto message = box.Pop();
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->program_id(), 5u);
  EXPECT_EQ(message->generation(), 7u);
  ASSERT_EQ(message->progress_size(), 2);
  EXPECT_EQ(message->progress(0).iterations_done(), 11);
  EXPECT_EQ(message->progress(1).iterations_done(), 12);
  EXPECT_FALSE(message->complete());
  EXPECT_FALSE(box.Pop().has_value());
}

TEST(ProgressMailbox, AnEndThatWasMergedIsStillAnEnd) {
  ProgressMailbox box;
  box.Push(Message(1, 10));
  box.Push(Message(0, 20, true));
  const auto message = box.Pop();
  EXPECT_TRUE(message->complete());
  EXPECT_EQ(message->progress_size(), 2);
}

}  // namespace
}  // namespace perigee
