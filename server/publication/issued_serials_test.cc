#include "server/publication/issued_serials.h"

#include "gtest/gtest.h"

namespace perigee {
namespace {

constexpr absl::Duration kNow = absl::Hours(5);

TEST(IssuedSerials, TakesInOrderAndNothingTwice) {
  IssuedSerials serials;
  EXPECT_FALSE(serials.Take(1, kNow));
  EXPECT_TRUE(serials.low(kNow));
  serials.Add({101, 8}, kNow, absl::Hours(1));
  EXPECT_FALSE(serials.low(kNow));
  EXPECT_EQ(serials.Take(3, kNow), (SerialRange{101, 3}));
  EXPECT_EQ(serials.Take(2, kNow), (SerialRange{104, 2}));
  EXPECT_FALSE(serials.low(kNow)) << "3 of 8 are left";
  EXPECT_FALSE(serials.Take(4, kNow));
  EXPECT_EQ(serials.Take(1, kNow), (SerialRange{106, 1})) << "what did not fit has taken nothing";
  EXPECT_TRUE(serials.low(kNow));
  serials.Add({901, 8}, kNow, absl::Hours(1));
  EXPECT_EQ(serials.Take(4, kNow), (SerialRange{901, 4}));
  EXPECT_EQ(serials.issued(), 10u);
}

TEST(IssuedSerials, NothingIsIssuedInTheLastQuarterOfItsLife) {
  IssuedSerials serials;
  serials.Add({1, 8}, kNow, absl::Hours(1));
  const absl::Duration late = kNow + absl::Minutes(45);
  EXPECT_TRUE(serials.Take(1, late - absl::Nanoseconds(1)));
  EXPECT_FALSE(serials.low(late - absl::Nanoseconds(1)));
  EXPECT_FALSE(serials.Take(1, late));
  EXPECT_TRUE(serials.low(late));
}

}  // namespace
}  // namespace perigee
