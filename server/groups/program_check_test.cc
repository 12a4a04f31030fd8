#include "server/groups/program_check.h"

#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kRanks = 4;

v1::BufferShape Shape(int32_t layers = 2) {
  v1::BufferShape shape;
  shape.set_layers(layers);
  return shape;
}

v1::Program Parse(const std::string& text) {
  v1::Program program;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &program)) << text;
  return program;
}

absl::Status Check(const std::string& text) { return CheckProgram(Parse(text), Shape(), kRanks); }

TEST(CheckProgram, AcceptsAWholeLayer) {
  EXPECT_TRUE(
      Check(R"pb(
        operations { dispatch { hidden: "x" topk_experts: "t" route_weights: "w" plan: "p" } }
        operations { prefetch_weights { plan: "p" layer: 1 weights_version: 3 } }
        operations { run_experts { plan: "p" layer: 0 weights_version: 3 } }
        operations { combine { plan: "p" output: "y" } }
        operations { barrier {} }
        operations { probe_copy { to_next_rank: true } }
        iterations: 1000000000
      )pb")
          .ok());
}

TEST(CheckProgram, APlanSavedByAnEarlierProgramMayBeUsed) {
  EXPECT_TRUE(Check(R"pb(operations { dispatch { hidden: "x" saved_plan: "old" } })pb").ok());
  EXPECT_TRUE(Check(R"pb(operations { combine { plan: "old" output: "y" } })pb").ok());
}

TEST(CheckProgram, RefusalsNameTheOperationAndWhatWasExpected) {
  const auto refused = [](const std::string& text, const char* where, const char* expected) {
    const absl::Status status = Check(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(where));
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  };
  refused("", "0 operations", "expected 1 to");
  refused("operations { probe_copy { alone: true to_next_rank: true } }",
          "operation 0 (probe_copy)", "expected one at most");
  refused("operations { probe_copy { rows: 1 to_next_rank: true } }", "(probe_copy)",
          "expected one at most");
  refused("operations { probe_copy { rows: 1 alone: true } }", "(probe_copy)",
          "expected one at most");
  refused("operations { probe_copy { rows: [ 1, 2, 3, 4, 5, 6, 7 ] } }", "rows has 7 values",
          "one for each rank");
  refused("operations { barrier {} } iterations: -1", "iterations is -1", "expected 0 to");
  refused("operations { barrier {} } iterations: 1000000001", "1000000001", "expected 0 to");
  refused("operations { barrier {} } iterations: 10001 keep_durations: true",
          "10001 iterations of 1 operations", "expected at most 10000 iterations");
  refused("operations { barrier {} } iterations: 10001 time_iterations: true",
          "time_iterations with 10001 iterations", "expected at most 10000");
  refused("operations { barrier {} } keep_durations: true time_iterations: true", "both set",
          "at most one");
  refused("operations { barrier {} } operations {}", "operation 1", "expected dispatch");
  refused("operations { dispatch { topk_experts: 't' plan: 'p' } }", "operation 0 (dispatch)",
          "hidden is empty");
  refused("operations { dispatch { hidden: 'x' plan: 'p' } }", "(dispatch)",
          "topk_experts is empty");
  refused("operations { dispatch { hidden: 'x' topk_experts: 't' } }", "(dispatch)",
          "plan is empty");
  refused("operations { combine { plan: 'p' } }", "(combine)", "output is empty");
  refused("operations { combine { output: 'y' } }", "(combine)", "plan is empty");
  refused("operations { run_experts { plan: 'p' layer: 2 weights_version: 1 } }", "(run_experts)",
          "layer is 2, expected 0 to 1");
  refused("operations { run_experts { plan: 'p' layer: 1 } }", "(run_experts)",
          "weights_version is 0");
  refused("operations { prefetch_weights { plan: 'p' layer: -1 weights_version: 1 } }",
          "(prefetch_weights)", "layer is -1");
  refused("operations { combine { plan: '" + std::string(300, 'p') + "' output: 'y' } }",
          "plan has 300 bytes", "at most 64");
}

// What a worker would refuse (worker/ops/program_check.cc), told before any has heard of it.
TEST(CheckProgram, FieldsThatDoNotGoTogetherAreNamed) {
  const std::string long_dispatch = "hidden: 'x' topk_experts: 't' plan: 'p' ";
  const struct {
    std::string operations, error;
  } cases[] = {
      {"operations { dispatch { " + long_dispatch + "row_weights_output: 'r' } }",
       "operation 0 (dispatch): row_weights_output is set, expected route_weights with it"},
      {"operations { dispatch { " + long_dispatch + "saved_plan: 'q' } }",
       "operation 0 (dispatch): plan and saved_plan are both set, expected one of them"},
      {"operations { combine { plan: 'p' output: 'y' row_weights: 'r' } }",
       "operation 0 (combine): row_weights is set, expected route_weights_output with it"},
      {"operations { combine { plan: 'a b' output: 'y' } }",
       "operation 0 (combine): plan is 'a b', expected letters, digits or _ - . /"},
      {"operations { prepare_publication { target: 't' tokens: 'a' tokens: 'b' } }",
       "operation 0 (prepare_publication): tokens has 2 of them, expected none or one of each of "
       "4 ranks"},
      {"operations { prepare_publication { target: 't' tokens: ['a', 'b', 'c', 'd'] } } "
       "iterations: 2",
       "operation 0 (prepare_publication): tokens are given and iterations is 2, expected 1"},
      {"operations { barrier {} } operations { barrier {} waits_for: 0 }",
       "operation 1: waits_for has 0, expected ordered_by_waits to be set then"},
      {"operations { barrier {} waits_for: 0 } ordered_by_waits: true",
       "operation 0: waits_for has 0, expected an operation that comes before it"},
      {"operations { barrier {} waits_for: -1 } ordered_by_waits: true", "waits_for has -1"},
  };
  for (const auto& one : cases) {
    const absl::Status status = Check(one.operations);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.operations;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.error));
  }
  EXPECT_TRUE(Check("operations { dispatch { " + long_dispatch +
                    "route_weights: 'w' rows_output: 'x1' row_weights_output: 'r' } } "
                    "operations { combine { plan: 'p' output: 'y' rows: 'x1' row_weights: 'r' "
                    "route_weights_output: 'v' } waits_for: 0 } ordered_by_waits: true")
                  .ok());
  EXPECT_TRUE(
      Check("operations { prepare_publication { target: 't' tokens: ['a', '', 'c', ''] } }").ok());
}

TEST(CheckProgram, OutputsAreMemoryOfTheirOwn) {
  const std::string dispatch = "operations { dispatch { hidden: 'x' topk_experts: 't' plan: 'p' ";
  const struct {
    std::string operations, error;
  } cases[] = {
      {dispatch + "rows_output: 'x' } }",
       "operation 0 (dispatch): rows_output 'x' is also an input before it is written"},
      {"operations { store_rows { target: 't' hidden: 'r' } } " + dispatch + "rows_output: 'r' } }",
       "operation 1 (dispatch): rows_output 'r' is also an input before it is written"},
      {dispatch + "} } operations { combine { plan: 'p' output: 'x' } }",
       "operation 1 (combine): output 'x' is also an input"},
      {"operations { combine { plan: 'p' output: 'y' } } "
       "operations { produce { a: 'y' b: 'b' output: 'z' } }",
       "operation 0 (combine): output 'y' is also an input"},
      {"operations { combine { plan: 'p' output: 'y' route_weights_output: 'y' } }",
       "operation 0 (combine): route_weights_output 'y' is an output already"},
      {"operations { produce { a: 'a' b: 'b' output: 'y' } } "
       "operations { combine { plan: 'p' output: 'y' } }",
       "operation 1 (combine): output 'y' is an output already"},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(std::string(Check(one.operations).message()), one.error) << one.operations;
  }
  EXPECT_TRUE(Check("operations { produce { a: 'a' b: 'b' output: 'y' } } "
                    "operations { produce { a: 'y' b: 'b' target: 't' } }")
                  .ok());
}

TEST(CheckProgram, WorkersComputeWithBFloat16Alone) {
  v1::BufferShape shape = Shape();
  const v1::Program run =
      Parse("operations { run_experts { plan: 'p' layer: 0 weights_version: 1 } }");
  shape.set_weight_format(v1::BufferShape::WEIGHT_FORMAT_BFLOAT16);
  EXPECT_TRUE(CheckProgram(run, shape, kRanks).ok());
  shape.set_weight_format(v1::BufferShape::WEIGHT_FORMAT_MXFP4);
  EXPECT_EQ(std::string(CheckProgram(run, shape, kRanks).message()),
            "operation 0 (run_experts): the buffer's weights are not bf16: workers move them only");
}

TEST(CheckProgram, ASourceIsUsedWhereThereIsOne) {
  v1::BufferShape shape = Shape();
  shape.set_source_storage(true);
  const auto error = [&](const std::string& text) {
    return std::string(CheckProgram(Parse(text), shape, kRanks).message());
  };
  constexpr char kPrepare[] = "operations { prepare_source { topk_experts: 't' source: 's' } }";
  constexpr char kMaterialise[] = "operations { materialise { source: 's' plan: 'p' } }";
  EXPECT_EQ(error(kPrepare), "");
  EXPECT_EQ(error(kMaterialise), "");
  EXPECT_EQ(error("operations { prepare_source { source: 's' } }"),
            "operation 0 (prepare_source): topk_experts is empty, expected a name");
  EXPECT_EQ(error("operations { prepare_source { topk_experts: 't' } }"),
            "operation 0 (prepare_source): source is empty, expected a name");
  EXPECT_EQ(error("operations { materialise { source: 's' } }"),
            "operation 0 (materialise): plan is empty, expected a name");
  shape.set_source_storage(false);
  EXPECT_EQ(error(kPrepare), "operation 0 (prepare_source): the buffer has no source storage");
  EXPECT_EQ(error(kMaterialise), "operation 0 (materialise): the buffer has no source storage");
}

TEST(CheckProgram, ABufferWithoutWeightsRunsNoExperts) {
  const absl::Status status =
      CheckProgram(Parse("operations { run_experts { plan: 'p' layer: 0 weights_version: 1 } }"),
                   Shape(0), kRanks);
  EXPECT_THAT(std::string(status.message()), HasSubstr("keeps no weights"));
}

TEST(CheckProgram, AProducerHasTwoFactorsAndAPlace) {
  const auto error = [](const std::string& text) {
    return std::string(CheckProgram(Parse(text), Shape(0), kRanks).message());
  };
  EXPECT_EQ(error("operations { produce { a: 'a' b: 'b' output: 'x' } }"), "");
  EXPECT_EQ(error("operations { produce { a: 'a' b: 'b' target: 't' } }"), "");
  EXPECT_EQ(error("operations { produce { b: 'b' output: 'x' } }"),
            "operation 0 (produce): a is empty, expected a name");
  EXPECT_EQ(error("operations { produce { a: 'a' output: 'x' } }"),
            "operation 0 (produce): b is empty, expected a name");
  EXPECT_EQ(error("operations { produce { a: 'a' b: 'b' } }"),
            "operation 0 (produce): output is empty, expected a name");
  EXPECT_EQ(error("operations { produce { a: 'a' b: 'b' target: '' } }"),
            "operation 0 (produce): target is empty, expected a name");
}

}  // namespace
}  // namespace perigee
