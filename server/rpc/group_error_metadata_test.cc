#include "server/rpc/group_error_metadata.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::EndsWith;

v1::GroupError Error(int ranks, size_t message_bytes, size_t name_bytes = 10) {
  v1::GroupError error;
  error.set_group("tenants/default/groups/g");
  error.set_generation(7);
  for (int i = 0; i < ranks; ++i) {
    v1::RankStatus* rank = error.add_ranks();
    rank->set_rank(i);
    rank->set_worker(std::string(name_bytes, 'w'));
    rank->set_code(14);
    rank->set_reason("GENERATION_ABORTED");
    rank->set_message(std::string(message_bytes, 'm'));
    rank->mutable_operation_error()->set_operation("dispatch");
  }
  return error;
}

TEST(GroupErrorMetadata, WhatFitsIsUnchanged) {
  const v1::GroupError error = Error(8, 200);
  EXPECT_EQ(SerializeGroupError(error), error.SerializeAsString());
}

TEST(GroupErrorMetadata, WhatIsTooLargeKeepsEveryRanksCodeAndReason) {
  for (const int ranks : {8, 32, 64, 128}) {
    for (const size_t bytes : {100, 1000, 5000}) {
      const std::string fitted = SerializeGroupError(Error(ranks, bytes, 63));
      EXPECT_LE(fitted.size(), kGroupErrorLimitBytes) << ranks << " " << bytes;
      v1::GroupError parsed;
      ASSERT_TRUE(parsed.ParseFromString(fitted));
      ASSERT_EQ(parsed.ranks_size(), ranks);
      for (const auto& rank : parsed.ranks()) {
        EXPECT_EQ(rank.code(), 14);
        EXPECT_EQ(rank.reason(), "GENERATION_ABORTED");
      }
    }
  }
}

TEST(GroupErrorMetadata, ShorteningNeverSplitsACharacter) {
  v1::GroupError error = Error(64, 10);
  for (auto& rank : *error.mutable_ranks()) {
    std::string text = "a";
    for (int i = 0; i < 100; ++i) absl::StrAppend(&text, "\xc3\xa4");
    rank.set_message(text);
  }
  v1::GroupError parsed;
  EXPECT_TRUE(parsed.ParseFromString(SerializeGroupError(error)));
}

TEST(GroupErrorMetadata, StatusMessagesAreLimited) {
  EXPECT_EQ(LimitStatusMessage("short"), "short");
  const std::string limited = LimitStatusMessage(std::string(5000, 'x'));
  EXPECT_EQ(limited.size(), kStatusMessageLimitBytes);
  EXPECT_THAT(limited, EndsWith("..."));
}

}  // namespace
}  // namespace perigee
