#include "server/groups/buffer_shape.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

v1::BufferShape Shape() {
  v1::BufferShape shape;
  shape.set_tokens(64);
  shape.set_hidden(32);
  shape.set_topk(4);
  shape.set_experts(16);
  shape.set_intermediate(16);
  shape.set_layers(2);
  return shape;
}

TEST(CompleteShape, FillsInTheDefaults) {
  const auto shape = CompleteShape(Shape(), 4);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->slots(), 4);
  EXPECT_EQ(shape->token_padding(), 128);
  EXPECT_EQ(shape->tokens(), 64);
}

TEST(CompleteShape, KeepsWhatWasGiven) {
  v1::BufferShape given = Shape();
  given.set_slots(0);
  given.set_token_padding(1);
  given.set_layers(0);
  given.set_intermediate(0);
  given.set_tokens(0);
  const auto shape = CompleteShape(given, 4);
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->slots(), 0);
  EXPECT_EQ(shape->token_padding(), 1);
}

TEST(CompleteShape, RefusalsNameTheValueAndWhatWasExpected) {
  const auto refused = [](auto change, const char* value, const char* expected) {
    v1::BufferShape shape = Shape();
    change(shape);
    const absl::Status status = CompleteShape(shape, 4).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(value));
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  };
  refused([](auto& s) { s.set_experts(18); }, "18", "multiple of ranks (4)");
  refused([](auto& s) { s.set_experts(0); }, "experts is 0", "expected 1");
  refused([](auto& s) { s.set_hidden(12); }, "hidden is 12", "multiple of 8");
  refused([](auto& s) { s.set_hidden(0); }, "hidden is 0", "from 8");
  refused([](auto& s) { s.set_topk(33); }, "topk is 33", "32");
  refused([](auto& s) { s.set_tokens(-1); }, "-1", "expected 0 or more");
  refused([](auto& s) { s.set_slots(-2); }, "slots is -2", "expected 0");
  refused([](auto& s) { s.set_token_padding(-1); }, "-1", "expected 1 row or more");
  refused([](auto& s) { s.set_intermediate(20); }, "intermediate is 20", "multiple of 8");
  refused([](auto& s) { s.set_intermediate(0); }, "layers is 2", "both or neither");
  refused([](auto& s) { s.set_layers(0); }, "layers is 0", "both or neither");
  refused([](auto& s) { s.set_layers(5000); }, "layers is 5000", "expected 0 to 4096");
  const auto gradients = [](auto& s) { s.set_gradients(true); };
  EXPECT_TRUE(([&] {
    v1::BufferShape shape = Shape();
    gradients(shape);
    return CompleteShape(shape, 4).ok();
  }()));
  refused(
      [&](auto& s) {
        gradients(s);
        s.set_slots(3);
      },
      "slots is 3", "at least experts / ranks = 4");
  refused(
      [&](auto& s) {
        gradients(s);
        s.set_layers(0);
        s.set_intermediate(0);
      },
      "layers is 0", "expected layers");
  refused([](auto& s) { s.set_weight_scales(true); }, "weight_scales is set", "bf16");
  refused([](auto& s) { s.set_weight_format(static_cast<v1::BufferShape::WeightFormat>(7)); },
          "weight_format 7", "bf16, 8 bit or MXFP4");
  refused([](auto& s) { s.set_tokens(1 << 28); }, "268435456", "less than 2^31");
}

TEST(CheckTimeouts, AreBounded) {
  EXPECT_TRUE(CheckTimeouts(0, 0).ok());
  EXPECT_TRUE(CheckTimeouts(500, 700).ok());
  EXPECT_EQ(std::string(CheckTimeouts(-1, 0).message()).find("operation_timeout_ms is -1"), 0u);
  EXPECT_EQ(std::string(CheckTimeouts(0, -1).message()).find("warmup_timeout_ms is -1"), 0u);
  EXPECT_FALSE(CheckTimeouts(INT64_C(1) << 40, 0).ok());
}

TEST(CheckSms, AreNotNegative) {
  EXPECT_TRUE(CheckSms(0, 0).ok());
  EXPECT_TRUE(CheckSms(24, 1000).ok());
  EXPECT_FALSE(CheckSms(-1, 0).ok());
  EXPECT_FALSE(CheckSms(0, -1).ok());
}

}  // namespace
}  // namespace perigee
