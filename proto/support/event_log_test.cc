#include "proto/support/event_log.h"

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(EventLog, WritesFieldsInOrder) {
  EXPECT_EQ(FormatEvent("rank_lost", {{"group", "tenants/default/groups/g1"},
                                      {"generation", Generation(7)},
                                      {"rank", RankId(3)},
                                      {"seconds", 0.5},
                                      {"count", 12}}),
            "rank_lost group=tenants/default/groups/g1 generation=7 rank=3 seconds=0.5 count=12");
}

TEST(EventLog, OneLineWhateverTheValue) {
  EXPECT_EQ(FormatEvent("e", {{"m", "two\nlines \"quoted\""}, {"n", ""}}),
            "e m=\"two\\nlines \\\"quoted\\\"\" n=\"\"");
}

}  // namespace
}  // namespace perigee
