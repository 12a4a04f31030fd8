#include "client/cli/bench/path_programs.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;

std::vector<int> WaitsOf(const v1::Program& program, int index) {
  const auto& waits = program.operations(index).waits_for();
  return {waits.begin(), waits.end()};
}

TEST(PathPrograms, TheOrdinaryPathDispatchesWhatWasProduced) {
  const BenchProgram program = ProducerProgram(ProducerPath::kOrdinary, 2);
  ASSERT_EQ(program.program.operations_size(), 6);
  EXPECT_FALSE(program.program.ordered_by_waits());
  EXPECT_TRUE(program.program.operations(3).has_barrier());
  const v1::ProduceOperation& produce = program.program.operations(4).produce();
  EXPECT_EQ(produce.a(), "factor1");
  EXPECT_EQ(produce.b(), "matrix");
  EXPECT_EQ(produce.output(), "produced1");
  EXPECT_EQ(program.program.operations(5).dispatch().hidden(), "produced1");
  ASSERT_EQ(program.timed.size(), 2u);
  EXPECT_EQ(program.timed[0].name, "produce_dispatch");
  EXPECT_THAT(program.timed[0].operations, ElementsAre(ElementsAre(1, 2), ElementsAre(4, 5)));
  EXPECT_EQ(program.timed[1].name, "produce");
  EXPECT_THAT(program.timed[1].operations, ElementsAre(ElementsAre(1), ElementsAre(4)));
}

TEST(PathPrograms, DirectSendsTheRestBehindTheProducer) {
  const BenchProgram program = ProducerProgram(ProducerPath::kDirect, 1);
  ASSERT_EQ(program.program.operations_size(), 5);
  EXPECT_FALSE(program.program.ordered_by_waits());
  EXPECT_TRUE(program.program.operations(1).has_prepare_dispatch());
  EXPECT_EQ(program.program.operations(2).produce().target(), "target");
  EXPECT_TRUE(program.program.operations(3).has_prepare_publication());
  EXPECT_TRUE(program.program.operations(4).has_publish());
  EXPECT_THAT(program.timed[0].operations, ElementsAre(ElementsAre(1, 2, 3, 4)));
  EXPECT_EQ(program.timed[1].name, "produce_direct");
  EXPECT_THAT(program.timed[1].operations, ElementsAre(ElementsAre(2)));
}

TEST(PathPrograms, OverlappedTheProducerDoesNotWaitForTheRest) {
  const BenchProgram program = ProducerProgram(ProducerPath::kDirectOverlapped, 2);
  ASSERT_EQ(program.program.operations_size(), 10);
  EXPECT_TRUE(program.program.ordered_by_waits());
  EXPECT_TRUE(program.program.operations(7).has_prepare_publication());
  EXPECT_TRUE(program.program.operations(8).has_produce());
  EXPECT_THAT(WaitsOf(program.program, 0), ElementsAre());
  EXPECT_THAT(WaitsOf(program.program, 5), ElementsAre(4)) << "the last input's publish";
  EXPECT_THAT(WaitsOf(program.program, 6), ElementsAre(5));
  EXPECT_THAT(WaitsOf(program.program, 7), ElementsAre(6));
  EXPECT_THAT(WaitsOf(program.program, 8), ElementsAre(6)) << "the target alone";
  EXPECT_THAT(WaitsOf(program.program, 9), ElementsAre(8, 7));
}

TEST(PathPrograms, BackToBackHasNothingBetweenAndAnOutputForEach) {
  const BackToBackProgram program = BackToBackProducer(ProducerPath::kOrdinary, 2);
  EXPECT_EQ(program.name, "produce_dispatch_back_to_back");
  EXPECT_EQ(program.count, 4);
  ASSERT_EQ(program.program.operations_size(), 8);
  EXPECT_EQ(program.program.operations(6).produce().output(), "produced3");
  EXPECT_EQ(program.program.operations(6).produce().a(), "factor1");
  EXPECT_EQ(BackToBackProducer(ProducerPath::kDirectOverlapped, 1).program.operations_size(), 8);
}

TEST(PathPrograms, WhatIsCombinedHasItsPathsName) {
  const v1::Program program = ProducerCombineProgram(ProducerPath::kDirect, 2);
  ASSERT_EQ(program.operations_size(), 12);
  EXPECT_EQ(program.operations(11).combine().output(), "output_direct1");
  EXPECT_EQ(program.operations(11).combine().plan(), program.operations(10).publish().plan());
}

TEST(PathPrograms, WhatAPathDoesNotWriteIsPoison) {
  for (const ProducerPath path : kProducerPaths) {
    const v1::Program program = ProducerCombineProgram(path, 2);
    const int second = program.operations_size() / 2;
    const v1::DispatchOperation& poison = program.operations(second).dispatch();
    EXPECT_EQ(poison.hidden(), kBenchPoison);
    EXPECT_EQ(poison.topk_experts(), "topk_experts1") << "the places of this input's rows";
    EXPECT_NE(poison.plan(), program.operations(program.operations_size() - 1).combine().plan());
    if (!program.ordered_by_waits()) continue;
    EXPECT_THAT(WaitsOf(program, second), ElementsAre(second - 1)) << "the last input's combine";
    EXPECT_THAT(WaitsOf(program, second + 1), ElementsAre(second));
  }
}

TEST(PathPrograms, PullingLeavesRowsWhereTheyAre) {
  const BenchProgram program = PullProgram(2);
  ASSERT_EQ(program.program.operations_size(), 6);
  EXPECT_TRUE(program.program.operations(3).has_barrier());
  const v1::PrepareSourceOperation& prepare = program.program.operations(4).prepare_source();
  EXPECT_EQ(prepare.topk_experts(), "topk_experts1");
  EXPECT_EQ(prepare.hidden(), "");
  EXPECT_EQ(prepare.route_weights(), "");
  EXPECT_EQ(program.program.operations(5).materialise().source(), prepare.source());
  ASSERT_EQ(program.timed.size(), 3u);
  EXPECT_EQ(program.timed[0].name, "pull");
  EXPECT_THAT(program.timed[0].operations, ElementsAre(ElementsAre(1, 2), ElementsAre(4, 5)));
  EXPECT_EQ(program.timed[2].name, "materialise");
  EXPECT_THAT(program.timed[2].operations, ElementsAre(ElementsAre(2), ElementsAre(5)));
  EXPECT_EQ(BackToBackPull(2).program.operations_size(), 8);
  EXPECT_EQ(BackToBackPull(2).count, 4);
}

TEST(PathPrograms, WhatIsCombinedAfterAPullWasStoredBefore) {
  const v1::Program program = PullCombineProgram(2);
  ASSERT_EQ(program.operations_size(), 6);
  EXPECT_EQ(program.operations(3).prepare_source().hidden(), "hidden1");
  EXPECT_EQ(program.operations(3).prepare_source().route_weights(), "route_weights1");
  EXPECT_EQ(program.operations(5).combine().plan(), program.operations(4).materialise().plan());
  EXPECT_EQ(program.operations(5).combine().output(), "output_pull1");
}

}  // namespace
}  // namespace perigee
