#include "kernels/plan/destination.h"

#include <gtest/gtest.h>

namespace perigee {
namespace {

TEST(Destination, EncodesAndDecodes) {
  for (int32_t raw : {0, 1, 17, INT32_MAX - 1}) {
    EXPECT_TRUE(IsPrimary(raw));
    EXPECT_EQ(DecodeRow(raw), raw);
    const int32_t duplicate = EncodeDuplicate(raw);
    EXPECT_TRUE(IsDuplicate(duplicate));
    EXPECT_FALSE(IsPrimary(duplicate));
    EXPECT_FALSE(IsMasked(duplicate));
    EXPECT_EQ(DecodeRow(duplicate), raw);
  }
  EXPECT_TRUE(IsMasked(kMaskedRoute));
  EXPECT_FALSE(IsDuplicate(kMaskedRoute));
  EXPECT_FALSE(IsPrimary(kMaskedRoute));
  EXPECT_EQ(RankOf(35, 18), 1);
  EXPECT_EQ(LocalRow(35, 18), 17);
}

TEST(Destination, LinksDuplicatesToTheirPrimaryInOrderOfK) {
  constexpr int32_t kRows = 10;
  // Ranks: 2 0 2 - 0 2, rows: 5 7 1 - 0 9.
  const int32_t dst[] = {
      25, 7, EncodeDuplicate(21), kMaskedRoute, EncodeDuplicate(0), EncodeDuplicate(29)};
  const auto expect = [&](int32_t k, int32_t primary, int32_t ordinal) {
    const DuplicateLink link = LinkOf(dst, k, kRows);
    EXPECT_EQ(link.primary, primary) << k;
    EXPECT_EQ(link.ordinal, ordinal) << k;
  };
  expect(0, -1, 0);
  expect(1, -1, 0);
  expect(2, 5, 1);
  expect(4, 7, 1);
  expect(5, 5, 2);
}

}  // namespace
}  // namespace perigee
