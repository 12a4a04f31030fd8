#include "server/groups/program_check.h"

#include <string>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

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

absl::Status Check(const std::string& text) { return CheckProgram(Parse(text), Shape()); }

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
          "operation 0 (probe_copy)", "expected one of them at most");
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
          "plan has 300 bytes", "at most 256");
}

TEST(CheckProgram, ASourceIsUsedWhereThereIsOne) {
  v1::BufferShape shape = Shape();
  shape.set_source_storage(true);
  const auto error = [&](const std::string& text) {
    return std::string(CheckProgram(Parse(text), shape).message());
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
  const absl::Status status = CheckProgram(
      Parse("operations { run_experts { plan: 'p' layer: 0 weights_version: 1 } }"), Shape(0));
  EXPECT_THAT(std::string(status.message()), HasSubstr("keeps no weights"));
}

TEST(CheckProgram, AProducerHasTwoFactorsAndAPlace) {
  const auto error = [](const std::string& text) {
    return std::string(CheckProgram(Parse(text), Shape(0)).message());
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
