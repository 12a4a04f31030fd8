#include "client/cli/bench/bench_shape.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

TEST(ParseBenchShape, FieldsComeInAnyOrderAndMayBeLeftOut) {
  const auto shape = ParseBenchShape("E256,K8,H7168,S4096");
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->tokens, 4096);
  EXPECT_EQ(shape->hidden, 7168);
  EXPECT_EQ(shape->topk, 8);
  EXPECT_EQ(shape->experts, 256);
  EXPECT_EQ(shape->token_padding, 128);
  EXPECT_EQ(shape->slots_of(8), 32);
  EXPECT_EQ(shape->intermediate, 0);
  EXPECT_EQ(FormatBenchShape(*shape), "S4096,H7168,K8,E256,P128");
}

TEST(ParseBenchShape, TakesEveryField) {
  const auto shape = ParseBenchShape("S16,H64,K2,E8,P1,B0,i1024");
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->token_padding, 1);
  EXPECT_EQ(shape->slots_of(2), 0);
  EXPECT_EQ(shape->intermediate, 1024);
  EXPECT_EQ(FormatBenchShape(*shape), "S16,H64,K2,E8,P1,B0,I1024");
  const Geometry geometry = GeometryOf(*shape, 2);
  EXPECT_EQ(geometry, (Geometry{2, 8, 16, 2, 0, 1}));
}

TEST(ParseBenchShape, ErrorsNameTheFieldAndTheFormat) {
  const auto refused = [](const char* text, const char* why) {
    const auto shape = ParseBenchShape(text);
    ASSERT_FALSE(shape.ok()) << text;
    const std::string message(shape.status().message());
    EXPECT_THAT(message, HasSubstr(why));
    EXPECT_THAT(message, HasSubstr("expected S4096,H7168,K8,E256[,P128][,B32][,I1024]"));
  };
  refused("", "'' is no field");
  refused("S16,H64,K2", "E (experts) is missing");
  refused("S16,H64,K2,E8,X3", "'X3' is no field");
  refused("S16,H64,K2,E8,S3", "S (tokens of a rank) is given twice");
  refused("S16,Hx,K2,E8", "H (elements of a row) is 'x'");
  refused("S16,H64,K0,E8", "K (routes of a token) is '0', which is no number of 1 or more");
  refused("S16,H64,K2,E8,B-1", "B (slots of a rank) is '-1'");
  refused("S16,H64,K2,E8,", "'' is no field");
  refused("S99999999999,H64,K2,E8", "S (tokens of a rank)");
}

TEST(CheckBenchShape, SizesMustFit) {
  const auto check = [](const char* text, int32_t ranks) {
    return std::string(CheckBenchShape(*ParseBenchShape(text), ranks).message());
  };
  EXPECT_EQ(check("S16,H64,K2,E8", 2), "");
  EXPECT_NE(check("S16,H64,K2,E8", 3), "") << "E is no multiple of R";
  EXPECT_THAT(check("S16,H60,K2,E8", 2), HasSubstr("H is 60, expected a multiple of 8"));
  EXPECT_THAT(check("S16,H64,K2,E8,I4", 2), HasSubstr("I is 4, expected a multiple of 8"));
  EXPECT_THAT(check("S16,H64,K9,E8", 2), HasSubstr("distinct experts"));
}

}  // namespace
}  // namespace perigee
