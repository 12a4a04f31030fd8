#include "worker/ops/program_check.h"

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

BufferShape Shape() {
  BufferShape shape;
  shape.geometry = Geometry{2, 4, 8, 2, 2, 4};
  shape.hidden = 16;
  shape.intermediate = 24;
  shape.layers = 2;
  shape.gradients = true;
  return shape;
}

v1::Program Parse(const std::string& text) {
  v1::Program program;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &program)) << text;
  return program;
}

constexpr char kGood[] = R"pb(
  operations { dispatch { hidden: "x" topk_experts: "t" route_weights: "w" plan: "p" } }
  operations { prefetch_weights { plan: "p" layer: 1 weights_version: 3 } }
  operations { run_experts { plan: "p" layer: 1 weights_version: 3 apply_route_weights: true } }
  operations { combine { plan: "p" output: "y" route_weights_output: "v" } }
  operations { dispatch { hidden: "x" saved_plan: "p" } }
  operations { barrier {} }
  operations { probe_copy { to_next_rank: true } }
  operations { reduce_gradients { plan: "p" layer: 1 } }
  iterations: 3
  keep_durations: true
)pb";

TEST(ProgramCheckTest, AWholeLayerIsFine) { EXPECT_TRUE(CheckProgram(Parse(kGood), Shape()).ok()); }

TEST(ProgramCheckTest, RunExpertsAndProbeCopyAreLocal) {
  const v1::Program program = Parse(kGood);
  std::vector<std::string> collective;
  for (const v1::ProgramOperation& operation : program.operations()) {
    if (IsCollective(operation)) collective.push_back(OperationName(operation));
  }
  EXPECT_EQ(collective, (std::vector<std::string>{"dispatch", "prefetch_weights", "combine",
                                                  "dispatch", "barrier", "reduce_gradients"}));
}

TEST(ProgramCheckTest, OutputsHaveTheShapesOfACombine) {
  const std::vector<OutputTensor> outputs = OutputsOf(Parse(kGood), Shape());
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].name, "y");
  EXPECT_EQ(Describe(outputs[0].spec), "bfloat16 [8, 16]");
  EXPECT_EQ(outputs[1].name, "v");
  EXPECT_EQ(Describe(outputs[1].spec), "float32 [8, 2]");
}

TEST(ProgramCheckTest, RowsOfADispatchMayBeCombinedLater) {
  const v1::Program program = Parse(R"pb(
    operations {
      dispatch {
        hidden: "x"
        saved_plan: "p"
        route_weights: "w"
        rows_output: "r"
        row_weights_output: "s"
      }
    }
    operations {
      combine { plan: "p" output: "y" route_weights_output: "v" rows: "r" row_weights: "s" }
    }
  )pb");
  EXPECT_TRUE(CheckProgram(program, Shape()).ok());
  const std::vector<OutputTensor> outputs = OutputsOf(program, Shape());
  ASSERT_EQ(outputs.size(), 4u);
  const int64_t rows = Shape().geometry.logical_rows();
  EXPECT_EQ(outputs[0].spec.shape, (std::vector<int64_t>{rows, 16}));
  EXPECT_EQ(outputs[1].spec.shape, (std::vector<int64_t>{rows}));
}

TEST(ProgramCheckTest, GradientsAreReducedWhereTheyAreKept) {
  const v1::Program program = Parse(R"(operations { reduce_gradients { plan: "p" layer: 1 } })");
  BufferShape shape = Shape();
  EXPECT_TRUE(CheckProgram(program, shape).ok());
  shape.gradients = false;
  EXPECT_THAT(std::string(CheckProgram(program, shape).message()),
              HasSubstr("operation 0 (reduce_gradients): the buffer keeps no gradients"));
}

TEST(ProgramCheckTest, WhatIsProducedMayBeReadBehindIt) {
  const v1::Program program = Parse(R"(
      operations { produce { a: "a" b: "b" output: "y" } }
      operations { dispatch { hidden: "y" topk_experts: "t" plan: "p" } }
      operations { produce { a: "y" b: "b" target: "t" } })");
  EXPECT_TRUE(CheckProgram(program, Shape()).ok()) << CheckProgram(program, Shape());
  const auto outputs = OutputsOf(program, Shape());
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].name, "y");
  EXPECT_EQ(outputs[0].readable_after, 0);
  EXPECT_FALSE(IsCollective(program.operations(0)));
}

TEST(ProgramCheckTest, WhatIsWrongWithCopiedRowsIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(operations { dispatch { hidden: "x" topk_experts: "t" plan: "p" rows_output: "a b" } })",
       "rows_output 'a b'"},
      {R"(operations { dispatch { hidden: "x" saved_plan: "p" row_weights_output: "r" } })",
       "expected route_weights with it"},
      {R"(operations { combine { plan: "p" output: "y" row_weights: "r" } })",
       "expected route_weights_output with it"},
      {R"(operations { combine { plan: "p" output: "y" rows: "y" } })", "'y' is also an input"},
      {R"(operations { combine { plan: "p" output: "y" rows: "r" } }
          operations { dispatch { hidden: "x" saved_plan: "p" rows_output: "r" } })",
       "'r' is also an input before it is written"},
  };
  for (const auto& [text, names] : cases) {
    const absl::Status status = CheckProgram(Parse(text), Shape());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(ReasonOf(status), kReasonInvalidProgram);
    EXPECT_THAT(std::string(status.message()), HasSubstr(names));
  }
}

TEST(ProgramCheckTest, WhatIsWrongIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(operations { reduce_gradients { plan: "p" layer: 2 } })", "layer is 2"},
      {"operations { reduce_gradients { layer: 1 } }", "plan ''"},
      {"operations { probe_copy { alone: true to_next_rank: true } }", "expected one at most"},
      {"operations { probe_copy { rows: 1 rows: 1 to_next_rank: true } }", "expected one at most"},
      {"operations { probe_copy { rows: 1 rows: 1 alone: true } }", "expected one at most"},
      {"operations { probe_copy { rows: 1 } }", "rows has 1 values, expected none or"},
      {"operations { probe_copy { rows: 0 rows: -1 } }", "rows has -1, expected 0 to NvS / 2"},
      {"operations { probe_copy { rows: 99999 rows: 1 } }", "rows has 99999, expected 0 to"},
      {R"(operations { prepare_publication { target: "t" tokens: "1" tokens: "2" } } iterations: 2)",
       "expected 1 where tokens are given"},
      {R"(operations { produce { b: "b" output: "y" } })", "operation 0 (produce): a ''"},
      {R"(operations { produce { a: "a" output: "y" } })", "operation 0 (produce): b ''"},
      {R"(operations { produce { a: "a" b: "b" } })", "operation 0 (produce): output ''"},
      {R"(operations { produce { a: "a" b: "b" target: "" } })", "target ''"},
      {R"(operations { produce { a: "y" b: "b" output: "y" } })",
       "output 'y' is also an input before it is written"},
      {R"(operations { dispatch { hidden: "y" saved_plan: "p" } }
          operations { produce { a: "a" b: "b" output: "y" } })",
       "output 'y' is also an input before it is written"},
      {R"(operations { produce { a: "a" b: "b" output: "y" } }
          operations { produce { a: "a" b: "b" output: "y" } })",
       "output 'y' is named twice"},
      {"", "no operations"},
      {"operations {}", "operation 0 (none)"},
      {"operations { barrier {} } iterations: -1", "iterations is -1"},
      {"operations { barrier {} } iterations: 10001 keep_durations: true",
       "expected at most 10000 iterations"},
      {"operations { barrier {} } iterations: 10001 time_iterations: true",
       "time_iterations with 10001 iterations, expected at most 10000"},
      {"operations { barrier {} } keep_durations: true time_iterations: true", "both set"},
      {R"(operations { barrier {} } operations { dispatch { topk_experts: "t" plan: "p" } })",
       "operation 1 (dispatch): hidden ''"},
      {R"(operations { dispatch { hidden: "x" plan: "p" } })", "topk_experts ''"},
      {R"(operations { dispatch { hidden: "x" topk_experts: "t" } })", "plan ''"},
      {R"(operations { dispatch { hidden: "x" topk_experts: "t" plan: "p" saved_plan: "q" } })",
       "both set"},
      {R"(operations { dispatch { hidden: "a b" topk_experts: "t" plan: "p" } })", "hidden 'a b'"},
      {R"(operations { prefetch_weights { layer: 1 weights_version: 1 } })", "plan ''"},
      {R"(operations { prefetch_weights { plan: "p" layer: 2 weights_version: 1 } })",
       "layer is 2, the buffer has 2"},
      {R"(operations { run_experts { plan: "p" layer: -1 weights_version: 1 } })", "layer is -1"},
      {R"(operations { run_experts { plan: "p" } })", "weights_version is 0"},
      {R"(operations { combine { plan: "p" } })", "output ''"},
      {R"(operations { combine { plan: "p" output: "y" route_weights_output: "y" } })",
       "'y' is named twice"},
      {R"(operations { dispatch { hidden: "x" topk_experts: "t" plan: "p" } }
          operations { combine { plan: "p" output: "x" } })",
       "'x' is also an input"},
  };
  for (const auto& [text, names] : cases) {
    const absl::Status status = CheckProgram(Parse(text), Shape());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(ReasonOf(status), kReasonInvalidProgram);
    EXPECT_THAT(std::string(status.message()), HasSubstr(names));
  }
}

TEST(ProgramCheckTest, TooManyOperationsAreRefused) {
  v1::Program program;
  for (int i = 0; i < kMaxProgramOperations; ++i) program.add_operations()->mutable_barrier();
  EXPECT_TRUE(CheckProgram(program, Shape()).ok());
  program.add_operations()->mutable_barrier();
  EXPECT_FALSE(CheckProgram(program, Shape()).ok());
}

TEST(ProgramCheckTest, ABufferWithoutWeightsRunsNoExperts) {
  BufferShape shape = Shape();
  shape.intermediate = shape.layers = 0;
  EXPECT_THAT(std::string(CheckProgram(Parse(kGood), shape).message()), HasSubstr("no weights"));
}

TEST(ProgramCheckTest, WeightsThatAreNotBFloat16AreMovedAndNotComputedWith) {
  BufferShape shape = Shape();
  shape.weight_format = WeightFormat::kMxfp4;
  EXPECT_TRUE(
      CheckProgram(
          Parse(R"(operations { prefetch_weights { plan: "p" layer: 1 weights_version: 3 } })"),
          shape)
          .ok());
  EXPECT_THAT(std::string(CheckProgram(Parse(kGood), shape).message()),
              HasSubstr("operation 2 (run_experts): the buffer's weights are not bf16"));
}

}  // namespace
}  // namespace perigee
