#include "server/publication/generation_history.h"

#include <string>

#include "gtest/gtest.h"

namespace perigee {
namespace {

constexpr const char* kGroup = "tenants/default/groups/g";

TEST(GenerationHistory, ALifeHasItsTimesAndItsReason) {
  GenerationHistory history;
  history.Begin(kGroup, Generation(7), {"workers/w0", "workers/w1"}, absl::FromUnixSeconds(10));
  EXPECT_EQ(history.Find(kGroup, Generation(7))->state(), v1::GenerationInfo::FORMING);
  history.Activate(kGroup, Generation(7), absl::FromUnixSeconds(11));
  history.End(kGroup, Generation(7), "rank 1 was lost", absl::FromUnixSeconds(12));
  history.End(kGroup, Generation(7), "again", absl::FromUnixSeconds(13));

  const v1::GenerationInfo* info = history.Find(kGroup, Generation(7));
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->name(), "tenants/default/groups/g/generations/7");
  EXPECT_EQ(info->state(), v1::GenerationInfo::ENDED);
  EXPECT_EQ(info->create_time().seconds(), 10);
  EXPECT_EQ(info->active_time().seconds(), 11);
  EXPECT_EQ(info->end_time().seconds(), 12);
  EXPECT_EQ(info->end_reason(), "rank 1 was lost");
  ASSERT_EQ(info->workers_size(), 2);
  EXPECT_EQ(info->workers(1), "workers/w1");
}

TEST(GenerationHistory, ListIsNewestFirstAndBounded) {
  GenerationHistory history;
  const uint64_t count = GenerationHistory::kKeptPerGroup + 5;
  for (uint64_t n = 1; n <= count; ++n) {
    history.Begin(kGroup, Generation(n), {}, absl::UnixEpoch());
    history.End(kGroup, Generation(n), "", absl::UnixEpoch());
  }
  const auto list = history.List(kGroup);
  ASSERT_EQ(list.size(), GenerationHistory::kKeptPerGroup);
  EXPECT_EQ(list.front().generation(), count);
  EXPECT_EQ(list.back().generation(), 6u);
  EXPECT_EQ(history.Find(kGroup, Generation(5)), nullptr);
}

TEST(GenerationHistory, OneThatNeverBecameActiveHasNoActiveTime) {
  GenerationHistory history;
  history.Begin(kGroup, Generation(1), {}, absl::UnixEpoch());
  history.End(kGroup, Generation(1), "forming failed", absl::UnixEpoch());
  EXPECT_FALSE(history.Find(kGroup, Generation(1))->has_active_time());
}

TEST(GenerationHistory, ALedgerIsKeptAsLongAsItsGeneration) {
  GenerationHistory history;
  history.Begin(kGroup, Generation(1), {}, absl::UnixEpoch());
  EXPECT_EQ(history.FindLedger(kGroup, Generation(1)), nullptr);
  v1::TokenLedger ledger;
  ledger.add_ranks()->set_spent(5);
  history.KeepLedger(kGroup, Generation(1), ledger);
  history.KeepLedger(kGroup, Generation(2), ledger);
  ASSERT_NE(history.FindLedger(kGroup, Generation(1)), nullptr);
  EXPECT_EQ(history.FindLedger(kGroup, Generation(1))->ranks(0).spent(), 5u);
  EXPECT_EQ(history.FindLedger(kGroup, Generation(2)), nullptr);
  history.Forget(kGroup);
  EXPECT_EQ(history.FindLedger(kGroup, Generation(1)), nullptr);
}

TEST(GenerationHistory, AForgottenGroupHasNone) {
  GenerationHistory history;
  history.Begin(kGroup, Generation(1), {}, absl::UnixEpoch());
  history.Forget(kGroup);
  EXPECT_TRUE(history.List(kGroup).empty());
  EXPECT_EQ(history.Find(kGroup, Generation(1)), nullptr);
  history.End(kGroup, Generation(1), "late", absl::UnixEpoch());
}

}  // namespace
}  // namespace perigee
