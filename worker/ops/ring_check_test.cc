#include "worker/ops/ring_check.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

BufferShape Shape(int32_t dispatch_slots, int32_t expert_slots, bool gradients = false) {
  BufferShape shape;
  shape.dispatch_output_slots = dispatch_slots;
  shape.expert_output_slots = expert_slots;
  shape.gradients = gradients;
  return shape;
}

absl::Status Check(const std::string& text, const BufferShape& shape) {
  v1::Program program;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &program)) << text;
  return CheckRings(program, shape);
}

std::string Dispatch(const std::string& slot, bool copies = false) {
  return absl::StrCat("operations { dispatch { slot: '", slot, "' copies_rows: ", copies, " } }");
}
std::string Experts(const std::string& slot, const std::string& output = "") {
  return absl::StrCat("operations { run_experts { slot: '", slot, "' output_slot: '", output,
                      "' } }");
}
std::string Combine(const std::string& slot) {
  return absl::StrCat("operations { combine { slot: '", slot, "' } }");
}

TEST(RingCheckTest, SlotsThatAreTakenAndReleasedInTimeAreRight) {
  EXPECT_TRUE(Check("operations { dispatch {} } operations { combine {} }", Shape(0, 0)).ok());
  EXPECT_TRUE(Check(Dispatch("a") + Experts("a") + Combine(""), Shape(1, 0)).ok());
  EXPECT_TRUE(Check(Dispatch("a") + Experts("a", "b") + Combine("b"), Shape(1, 1)).ok());
  EXPECT_TRUE(Check(Dispatch("a") + Experts("a", "x") + Dispatch("a") + Combine("x") +
                        Experts("a", "x") + Combine("x"),
                    Shape(1, 1))
                  .ok());
  EXPECT_TRUE(Check(Dispatch("a", true) + Experts("a"), Shape(1, 0, true)).ok());
}

// By table: the program, the buffer, and what is wrong.
TEST(RingCheckTest, WhatCannotBeIsRefusedByName) {
  struct Case {
    std::string program;
    BufferShape shape;
    std::string text;
  };
  const Case cases[] = {
      {Dispatch("a") + Experts("a"), Shape(0, 4),
       "operation 0: the buffer has no dispatch-output slots"},
      {Dispatch("a") + Experts("a", "b"), Shape(4, 0),
       "operation 1: the buffer has no expert-output slots"},
      {Dispatch("a") + Dispatch("a"), Shape(4, 4),
       "operation 1: dispatch-output slot 'a' is operation 0's, expected a run_experts"},
      {Dispatch("a") + Experts("b"), Shape(4, 4),
       "operation 1: there is no dispatch-output slot 'b' here"},
      {Dispatch("a") + Experts("a") + Experts("a"), Shape(4, 4), "operation 2: there is no"},
      {Dispatch("a") + Experts("a") + Combine("a"), Shape(4, 4),
       "operation 2: there is no expert-output slot 'a'"},
      {Dispatch("a"), Shape(4, 4), "dispatch-output slot 'a' of operation 0 is not released"},
      {Dispatch("a") + Experts("a", "b"), Shape(4, 4),
       "expert-output slot 'b' of operation 1 is not released, expected a combine"},
      {"operations { run_experts { output_slot: 'a' } }", Shape(4, 4),
       "output_slot is set and slot is not"},
      {Dispatch("a") + Experts("a", "b") +
           "operations { combine { slot: 'b' route_weights_output: 'w' } }",
       Shape(4, 4), "route_weights_output is set"},
      {"operations { dispatch { slot: 'a' rows_output: 'r' } }", Shape(4, 4),
       "operation 0: slot is set and outputs for the rows are"},
      {Dispatch("a") + Experts("a", "b") + "operations { combine { slot: 'b' rows: 'r' } }",
       Shape(4, 4), "slot and rows are both set"},
      {Dispatch("a") + Experts("a"), Shape(4, 4, true),
       "operation 0: the buffer keeps gradients, for which rows are needed again"},
      {Dispatch(" "), Shape(4, 4), "operation 0: slot"},
  };
  for (const Case& wrong : cases) {
    SCOPED_TRACE(wrong.program);
    const absl::Status status = Check(wrong.program, wrong.shape);
    EXPECT_EQ(ReasonOf(status), kReasonInvalidProgram);
    EXPECT_THAT(std::string(status.message()), HasSubstr(wrong.text));
  }
}

// Nine dispatches ahead, with slots for four.
TEST(RingCheckTest, TooFewSlotsAreRefusedWithTheNumberNeeded) {
  std::string program;
  for (int i = 0; i < 9; ++i) absl::StrAppend(&program, Dispatch(absl::StrCat("a", i)));
  for (int i = 0; i < 9; ++i) absl::StrAppend(&program, Experts(absl::StrCat("a", i)));
  EXPECT_THAT(std::string(Check(program, Shape(4, 0)).message()),
              HasSubstr("the program needs 9 dispatch-output slots, the buffer has 4"));
  EXPECT_TRUE(Check(program, Shape(9, 0)).ok());
  // In turn: the first one is held while the others come and go.
  std::string held = Dispatch("first");
  for (int i = 0; i < 3; ++i) absl::StrAppend(&held, Dispatch("a"), Experts("a"));
  EXPECT_THAT(std::string(Check(held + Experts("first"), Shape(3, 0)).message()),
              HasSubstr("needs 4 dispatch-output slots, the buffer has 3"));
}

}  // namespace
}  // namespace perigee
