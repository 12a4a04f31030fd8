// Programs of an owner-sharded source: what materialise needs, and what ends a view.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/testing/program_runner_fixture.h"

namespace perigee {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPrepare[] =
    R"(operations { prepare_source { topk_experts: "t" hidden: "x" route_weights: "w" source: "s" } })";
constexpr char kPrepareInPlace[] =
    R"(operations { prepare_source { topk_experts: "t" source: "s" plan: "q" } })";
constexpr char kMaterialise[] = R"(operations { materialise { source: "s" plan: "p" } })";

class SourceProgramTest : public ProgramRunnerTest {
 protected:
  SourceProgramTest() { shape_.source_storage = true; }
};

TEST_F(SourceProgramTest, AWholeLayer) {
  const ProgramOutcome outcome =
      Run(absl::StrCat(kPrepare, kMaterialise, kPrefetch, kExperts, kCombine));
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  EXPECT_THAT(path_->calls(), ElementsAre("prepare_source 1", "materialise 2", "prefetch_weights 3",
                                          "run_experts 0", "combine 4"));
  EXPECT_EQ(path_->last_source().token_count, 3);
  EXPECT_NE(path_->last_source().hidden, nullptr);
  EXPECT_NE(path_->last_source().route_weights, nullptr);
  EXPECT_EQ(outcome.progress.timings(0).operation(), "prepare_source");
  EXPECT_EQ(outcome.progress.timings(1).operation(), "materialise");
  EXPECT_EQ(outcome.progress.plan().token_count(), 3);
}

TEST_F(SourceProgramTest, WhatLiesThereStaysAndThePlanIsGoodAtOnce) {
  EXPECT_EQ(Run(absl::StrCat(kPrepareInPlace, R"pb(
              operations { prefetch_weights { plan: "q" layer: 1 weights_version: 3 } })pb"))
                .status.code(),
            0);
  EXPECT_EQ(path_->last_source().hidden, nullptr);
  EXPECT_EQ(path_->last_source().route_weights, nullptr);
  // The view outlives the program, and what it is materialised for.
  EXPECT_EQ(Run(absl::StrCat(kMaterialise, kMaterialise), 3).status.code(), 0);
}

TEST_F(SourceProgramTest, AViewThatDoesNotLiveIsNamedWithTheOneThatDoes) {
  const ProgramOutcome none = Run(kMaterialise);
  EXPECT_EQ(none.status.reason(), "STALE_OBJECT");
  EXPECT_THAT(none.status.message(), HasSubstr("there is no source view 's', none lives; "));
  EXPECT_THAT(path_->calls(), ElementsAre("decline 1")) << "the others are told";
  const ProgramOutcome other = Run(
      absl::StrCat(kPrepare, R"(operations { prepare_source { topk_experts: "t" source: "r" } })",
                   kMaterialise),
      2);
  EXPECT_EQ(other.status.reason(), "STALE_OBJECT");
  EXPECT_THAT(other.status.message(),
              HasSubstr("'r' {buffer 3, generation 7, sequence 3} is the one that lives; "));
}

TEST_F(SourceProgramTest, OneThatEndsEarlyEndsTheLastViewWhereItStored) {
  EXPECT_EQ(Run(kPrepare).status.code(), 0);
  Fail("prepare_source", Leave(AbortReason::kCancelled, Operation::kPrepareSource, 2));
  EXPECT_EQ(Run(kPrepareInPlace, 2).status.reason(), "CANCELLED");
  path_->set_behaviour(nullptr);
  EXPECT_EQ(Run(kMaterialise, 3).status.code(), 0) << "nothing was stored";
  Fail("prepare_source", Leave(AbortReason::kCancelled, Operation::kPrepareSource, 4));
  EXPECT_EQ(Run(kPrepare, 4).status.reason(), "CANCELLED");
  path_->set_behaviour(nullptr);
  EXPECT_EQ(Run(kMaterialise, 5).status.reason(), "STALE_OBJECT");
}

TEST_F(SourceProgramTest, QueuedViewsAreGoneWithWhatFailedBeforeThem) {
  path_->set_queues();
  Fail("materialise", Leave(AbortReason::kCancelled, Operation::kMaterialise, 2));
  EXPECT_EQ(Run(absl::StrCat(kPrepare, kMaterialise)).status.reason(), "CANCELLED");
  path_->set_behaviour(nullptr);
  EXPECT_EQ(Run(kMaterialise, 3).status.reason(), "STALE_OBJECT");
  EXPECT_EQ(Run(absl::StrCat(kPrepare, kMaterialise), 4).status.code(), 0);
}

TEST_F(SourceProgramTest, AMaterialiseThatEndsEarlyLeavesNoRows) {
  Fail("materialise", Leave(AbortReason::kCancelled, Operation::kMaterialise, 2));
  EXPECT_EQ(Run(absl::StrCat(kPrepare, kMaterialise)).status.reason(), "CANCELLED");
  EXPECT_EQ(objects_.rows().state, RowsState::kUndefined);
  path_->set_behaviour(nullptr);
  EXPECT_EQ(Run(kMaterialise, 3).status.reason(), "STALE_OBJECT") << "the program took it along";
  EXPECT_EQ(Run(kPrepare, 4).status.code(), 0);
  Fail("materialise", Leave(AbortReason::kCancelled, Operation::kMaterialise, 5));
  EXPECT_EQ(Run(kMaterialise, 5).status.reason(), "CANCELLED");
  path_->set_behaviour(nullptr);
  EXPECT_EQ(Run(kMaterialise, 6).status.code(), 0) << "a view of another program lives";
}

TEST_F(SourceProgramTest, WhatProgramsAreNot) {
  const auto message = [this](const std::string& text) {
    const ProgramOutcome outcome = Run(text);
    EXPECT_EQ(outcome.status.reason(), "INVALID_PROGRAM");
    return outcome.status.message();
  };
  EXPECT_THAT(message(R"(operations { materialise { source: "s" } })"), HasSubstr("plan"));
  EXPECT_THAT(message(R"(operations { prepare_source { topk_experts: "t" } })"),
              HasSubstr("source ''"));
  EXPECT_THAT(
      message(absl::StrCat(kPrepare, R"(operations { combine { plan: "p" output: "w" } })")),
      HasSubstr("output 'w' is also an input"));
  EXPECT_THAT(message(absl::StrCat("ordered_by_waits: true ", kPrepare, kMaterialise)),
              HasSubstr("operation 1 (materialise) and operation 0 (prepare_source) both use the "
                        "source, expected the later to wait for the earlier"));
  shape_.source_storage = false;
  EXPECT_THAT(message(kPrepare),
              HasSubstr("operation 0 (prepare_source): the buffer has no source storage"));
  EXPECT_THAT(message(kMaterialise), HasSubstr("the buffer has no source storage"));
  EXPECT_THAT(path_->calls(), Not(Contains(HasSubstr("source"))));
}

TEST_F(SourceProgramTest, TensorsOfOtherSizesAreRefused) {
  Write("w", v1::TENSOR_DTYPE_FLOAT32, {2, 2});
  const ProgramOutcome outcome = Run(kPrepare);
  EXPECT_EQ(outcome.status.reason(), "STALE_OBJECT");
  EXPECT_THAT(outcome.status.message(),
              HasSubstr("tensor 'w' is float32 [2, 2], expected float32 [3, 2]"));
}

}  // namespace
}  // namespace perigee
