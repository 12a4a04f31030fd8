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

// Whether the data path queues: when a program has ended it is all the same.
class SourceEndsTest : public SourceProgramTest, public ::testing::WithParamInterface<bool> {
 protected:
  SourceEndsTest() {
    if (GetParam()) path_->set_queues();
  }
  // The reason of its failure, or "".
  std::string Run(const std::string& text) {
    const uint64_t first = objects_.last_sequence().value + 1;
    return SourceProgramTest::Run(text, first).status.reason();
  }
  std::string RunFailing(const std::string& name, const std::string& text) {
    const uint64_t first = objects_.last_sequence().value + 1;
    const Operation operation = name == "barrier"       ? Operation::kBarrier
                                : name == "materialise" ? Operation::kMaterialise
                                                        : Operation::kPrepareSource;
    Fail(name, Leave(AbortReason::kCancelled, operation, first));
    std::string reason = Run(text);
    path_->set_behaviour(nullptr);
    return reason;
  }
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

TEST_P(SourceEndsTest, OneThatEndsEarlyEndsTheLastViewWhereItStored) {
  EXPECT_EQ(Run(kPrepare), "");
  EXPECT_EQ(RunFailing("prepare_source", kPrepareInPlace), "CANCELLED");
  EXPECT_EQ(Run(kMaterialise), "") << "nothing was stored";
  EXPECT_EQ(RunFailing("prepare_source", kPrepare), "CANCELLED");
  EXPECT_EQ(Run(kMaterialise), "STALE_OBJECT");
}

// Whatever it was to store is not there.
TEST_P(SourceEndsTest, OneBehindAnOperationThatFailsIsAsIfItWereNot) {
  EXPECT_EQ(Run(kPrepare), "");
  const std::string other =
      R"(operations { prepare_source { topk_experts: "t" hidden: "x" source: "r" } })";
  EXPECT_EQ(RunFailing("barrier", absl::StrCat(kBarrier, other, kPrepare)), "CANCELLED");
  EXPECT_EQ(Run(kMaterialise), "");
  EXPECT_EQ(Run(R"(operations { materialise { source: "r" plan: "p" } })"), "STALE_OBJECT");
}

TEST_P(SourceEndsTest, AProgramThatFailsTakesAlongWhatItHasMade) {
  EXPECT_EQ(Run(kPrepare), "");
  EXPECT_EQ(RunFailing("materialise", absl::StrCat(kPrepare, kMaterialise)), "CANCELLED");
  EXPECT_EQ(Run(kMaterialise), "STALE_OBJECT");
  EXPECT_EQ(Run(kPrepare), "");
  EXPECT_EQ(RunFailing("materialise", kMaterialise), "CANCELLED");
  EXPECT_EQ(Run(kMaterialise), "") << "a view of another program lives";
}

INSTANTIATE_TEST_SUITE_P(EveryDataPath, SourceEndsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "queues" : "waits"; });

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
