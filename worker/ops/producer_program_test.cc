// Programs with a producer: where its rows go, who may read them, and what runs beside it.
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/ops/failure_reason.h"
#include "worker/publication/token_ledger.h"
#include "worker/testing/program_runner_fixture.h"

namespace perigee {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kProduce[] = R"(operations { produce { a: "a" b: "b" output: "y" } })";
constexpr char kDispatchIt[] =
    R"(operations { dispatch { hidden: "y" topk_experts: "t" route_weights: "w" plan: "p" } })";
// Both wait for the target alone.
constexpr char kDirect[] = R"(
    ordered_by_waits: true
    operations { prepare_dispatch { topk_experts: "t" target: "d" } }
    operations { prepare_publication { target: "d" route_weights: "w" } waits_for: 0 }
    operations { produce { a: "a" b: "b" target: "d" } waits_for: 0 }
    operations { publish { target: "d" plan: "p" } waits_for: [1, 2] })";

class ProducerProgramTest : public ProgramRunnerTest {
 protected:
  ProducerProgramTest() {
    ledger_ = &tokens_;
    EXPECT_TRUE(tokens_.Grant(TokenHolder::kWorker, {1, 4}, absl::Minutes(60)).ok());
    Write("a", v1::TENSOR_DTYPE_BFLOAT16, {3, 16});
    Write("b", v1::TENSOR_DTYPE_BFLOAT16, {16, 8});
  }

  TokenLedger tokens_{MakeTokenScope(group_.group, Generation(7), RankId(0)), TokenKey(), clock_,
                      nullptr};
};

TEST_F(ProducerProgramTest, WhatIsProducedIsDispatchedInEveryIteration) {
  const ProgramOutcome outcome = Run(absl::StrCat(kProduce, kDispatchIt, " iterations: 2"));
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  EXPECT_THAT(path_->calls(), ElementsAre("produce 0", "dispatch 1", "produce 0", "dispatch 2"));
  EXPECT_EQ(path_->last_product().depth, 16);
  EXPECT_EQ(path_->last_product().token_count, 3);
  const auto output = tensors_.Find("y");
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(Describe((*output)->spec()), "bfloat16 [3, 8]");
  EXPECT_EQ(reinterpret_cast<const std::byte*>(path_->last_dispatch().hidden), (*output)->data());
  EXPECT_EQ(outcome.progress.timings(0).operation(), "produce");
  EXPECT_EQ(outcome.progress.timings(0).count(), 2);
}

TEST_F(ProducerProgramTest, WhatIsProducedFromAProductHasItsRows) {
  Write("c", v1::TENSOR_DTYPE_BFLOAT16, {8, 8});
  const ProgramOutcome outcome = Run(absl::StrCat(
      kProduce, R"(operations { produce { a: "y" b: "c" output: "z" } } iterations: 2)"));
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  const auto output = tensors_.Find("z");
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(Describe((*output)->spec()), "bfloat16 [3, 8]");
}

TEST_F(ProducerProgramTest, MetadataRunsBesideTheProducerWhereItDoesNotWait) {
  path_->set_queues();
  EXPECT_EQ(Run(kDirect).status.code(), 0);
  EXPECT_THAT(path_->calls(), ElementsAre("prepare_dispatch 1", "prepare_publication beside 0",
                                          "produce into 0", "publish 2"));
}

TEST_F(ProducerProgramTest, InOrderNothingRunsBeside) {
  path_->set_queues();
  const std::string steps = absl::StrCat(
      R"(operations { prepare_dispatch { topk_experts: "t" target: "d" } }
         operations { prepare_publication { target: "d" } }
         operations { produce { a: "a" b: "b" target: "d" } }
         operations { publish { target: "d" plan: "p" } })");
  EXPECT_EQ(Run(steps).status.code(), 0);
  EXPECT_THAT(path_->calls(), Contains("prepare_publication 0"));
}

TEST_F(ProducerProgramTest, WhereNothingQueuesNothingRunsBeside) {
  const ProgramOutcome outcome = Run(kDirect);
  EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  EXPECT_THAT(path_->calls(), Contains("prepare_publication 0"));
}

TEST_F(ProducerProgramTest, FactorsThatDoNotFitAreNamedAndTheNextOperationDeclined) {
  Write("b", v1::TENSOR_DTYPE_BFLOAT16, {24, 8});
  const ProgramOutcome outcome = Run(absl::StrCat(kProduce, kDispatchIt));
  EXPECT_EQ(outcome.status.reason(), kReasonStaleObject);
  EXPECT_THAT(outcome.status.message(),
              HasSubstr("tensor 'b' is bfloat16 [24, 8], expected bfloat16 [16, 8]"));
  EXPECT_THAT(path_->calls(), ElementsAre("decline 1"));
  Write("a", v1::TENSOR_DTYPE_INT32, {3, 2});
  EXPECT_THAT(Run(kProduce, 2).status.message(), HasSubstr("expected bfloat16 [n, C]"));
}

TEST_F(ProducerProgramTest, WithoutATargetOfThatNameNothingIsProduced) {
  const ProgramOutcome outcome = Run(R"(operations { produce { a: "a" b: "b" target: "d" } })");
  EXPECT_EQ(outcome.status.reason(), kReasonStaleObject);
  EXPECT_THAT(outcome.status.message(), HasSubstr("there is no target 'd'"));
  EXPECT_THAT(path_->calls(), ElementsAre());
}

TEST_F(ProducerProgramTest, AnOutputWhoseProducerFailsLaterIsUndefined) {
  path_->set_queues();
  Fail("dispatch", Leave(AbortReason::kCancelled, Operation::kDispatch, 1));
  EXPECT_EQ(Run(absl::StrCat(kProduce, kDispatchIt)).status.reason(), "CANCELLED");
  EXPECT_THAT(std::string(tensors_.Find("y").status().message()), HasSubstr("is undefined"));
}

}  // namespace
}  // namespace perigee
