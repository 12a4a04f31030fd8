#include "worker/ops/transport_counters.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;

TEST(TransportCounters, SaysWhereAndHow) {
  const v1::TransportCounts counts = TransportCounters("g", Generation(7), "nvlink").Snapshot();
  EXPECT_EQ(counts.group(), "g");
  EXPECT_EQ(counts.generation(), 7u);
  EXPECT_EQ(counts.transport(), "nvlink");
  EXPECT_EQ(counts.bytes_sent_size(), 0) << "nobody counts them";
  EXPECT_EQ(counts.failures_size(), 0);
}

TEST(TransportCounters, BytesOfAllBuffersAreSummedAndStayWhenTheyGo) {
  TransportCounters counters("g", Generation(7), "nccl");
  auto first = std::make_shared<LinkTraffic>(3);
  auto second = std::make_shared<LinkTraffic>(3);
  counters.Watch(first);
  counters.Watch(nullptr);
  first->Sent(1, 100);
  EXPECT_THAT(counters.Snapshot().bytes_sent(), ElementsAre(0, 100, 0));
  first->Sent(2, 5);
  first.reset();
  EXPECT_THAT(counters.Snapshot().bytes_sent(), ElementsAre(0, 100, 5));
  counters.Watch(second);
  second->Sent(0, 7);
  EXPECT_THAT(counters.Snapshot().bytes_sent(), ElementsAre(7, 100, 5));
}

TEST(TransportCounters, FailuresAreCountedByReason) {
  TransportCounters counters("g", Generation(7), "nccl");
  for (const char* reason : {"DEADLINE", "DECLINED", "DEADLINE"}) counters.CountFailure(reason);
  const v1::TransportCounts counts = counters.Snapshot();
  ASSERT_EQ(counts.failures_size(), 2);
  EXPECT_EQ(counts.failures(0).reason(), "DEADLINE");
  EXPECT_EQ(counts.failures(0).count(), 2u);
  EXPECT_EQ(counts.failures(1).reason(), "DECLINED");
}

}  // namespace
}  // namespace perigee
