#include "kernels/plan/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr Geometry kGood{
    .ranks = 8, .experts = 64, .tokens = 256, .topk = 8, .slots = 8, .token_padding = 128};

TEST(Validate, AcceptsTheLimits) {
  EXPECT_TRUE(ValidateGeometry(kGood).ok());
  Geometry geometry = kGood;
  geometry.tokens = 0;
  geometry.slots = 0;
  geometry.token_padding = 1;
  EXPECT_TRUE(ValidateGeometry(geometry).ok());
  EXPECT_TRUE(ValidateGeometry({.ranks = 128, .experts = 128, .tokens = 1, .topk = 32}).ok());
  EXPECT_TRUE(ValidateGeometry({.ranks = 1, .experts = 1, .tokens = 1, .topk = 1}).ok());
  EXPECT_TRUE(ValidateGeometry({.ranks = 1,
                                .experts = 1,
                                .tokens = INT32_MAX,
                                .topk = 1,
                                .slots = 0,
                                .token_padding = 1})
                  .ok());
}

void ExpectRefused(const Geometry& geometry, const std::string& what) {
  const absl::Status status = ValidateGeometry(geometry);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr(what));
}

TEST(Validate, NamesWhatIsWrongAndWhatWasExpected) {
  Geometry geometry = kGood;
  geometry.experts = 66;
  ExpectRefused(geometry, "experts is 66, expected a multiple of ranks (8)");
  geometry.experts = 0;
  ExpectRefused(geometry, "experts is 0, expected 1 to");
  geometry = kGood;
  geometry.ranks = 129;
  ExpectRefused(geometry, "ranks is 129, expected 1 to 128");
  geometry.ranks = 0;
  ExpectRefused(geometry, "ranks is 0");
  geometry = kGood;
  geometry.topk = 33;
  ExpectRefused(geometry, "topk is 33, expected 1 to 32");
  geometry = kGood;
  geometry.slots = -1;
  ExpectRefused(geometry, "slots is -1, expected 0 to");
  geometry = kGood;
  geometry.tokens = -1;
  ExpectRefused(geometry, "tokens per rank is -1, expected 0 or more");
  geometry = kGood;
  geometry.token_padding = 0;
  ExpectRefused(geometry, "token padding is 0, expected 1 row or more");
}

TEST(Validate, KeepsEveryRowIn31Bits) {
  Geometry geometry{
      .ranks = 8, .experts = 8, .tokens = 1 << 23, .topk = 32, .slots = 0, .token_padding = 1};
  ExpectRefused(geometry, "is 2147483648, expected less than 2^31");
  --geometry.tokens;
  EXPECT_TRUE(ValidateGeometry(geometry).ok());
  // Products that do not fit 64 bits must not slip through.
  ExpectRefused({.ranks = 128,
                 .experts = kMaxExperts,
                 .tokens = INT32_MAX,
                 .topk = 32,
                 .slots = kMaxSlots,
                 .token_padding = INT32_MAX},
                "expected less than 2^31");
}

TEST(Validate, TokenCounts) {
  EXPECT_TRUE(ValidateTokenCount(kGood, RankId(3), 0).ok());
  EXPECT_TRUE(ValidateTokenCount(kGood, RankId(3), 256).ok());
  EXPECT_THAT(std::string(ValidateTokenCount(kGood, RankId(3), 257).message()),
              HasSubstr("token count of rank 3 is 257, expected 0 to 256"));
  EXPECT_FALSE(ValidateTokenCount(kGood, RankId(0), -1).ok());
}

}  // namespace
}  // namespace perigee
