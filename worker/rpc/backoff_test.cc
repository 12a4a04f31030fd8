#include "worker/rpc/backoff.h"

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(BackoffTest, DoublesFromTheLeastToTheMost) {
  Backoff backoff([] { return uint64_t{1} << 63; });  // the middle: no jitter
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(50));
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(100));
  for (int i = 0; i < 10; ++i) backoff.Next();
  EXPECT_EQ(backoff.Next(), absl::Seconds(2));
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(50));
}

TEST(BackoffTest, IsAFifthOffAtMost) {
  Backoff least([] { return uint64_t{0}; });
  EXPECT_EQ(least.Next(), absl::Milliseconds(40));
  Backoff most([] { return ~uint64_t{0}; });
  EXPECT_LE(most.Next(), absl::Milliseconds(60));
  EXPECT_GE(most.Next(), absl::Milliseconds(119));
}

}  // namespace
}  // namespace perigee
