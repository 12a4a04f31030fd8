#include "client/cli/bench/bench_programs.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> TimedNames(const BenchProgram& program) {
  std::vector<std::string> names;
  for (const TimedOperation& timed : program.timed) names.push_back(timed.name);
  return names;
}

TEST(BenchPrograms, MicroBatchesAreDispatchedAheadIntoSlots) {
  const BackToBackProgram ring =
      MicroBatchProgram("ring", {.inputs = 2, .count = 3, .pending = 1, .slots = true});
  EXPECT_EQ(ring.count, 3);
  std::string order;
  for (const v1::ProgramOperation& operation : ring.program.operations()) {
    if (operation.has_dispatch()) {
      absl::StrAppend(&order, "d:", operation.dispatch().slot(), ":", operation.dispatch().hidden(),
                      " ");
    }
    if (operation.has_run_experts()) {
      absl::StrAppend(&order, "e:", operation.run_experts().slot(), " ");
      EXPECT_EQ(operation.run_experts().output_slot(), "");
    }
    if (operation.has_combine()) absl::StrAppend(&order, "c:", operation.combine().output(), " ");
  }
  EXPECT_EQ(order,
            "d:dispatched0:hidden0 d:dispatched1:hidden1 e:dispatched0 c:output0 "
            "d:dispatched2:hidden0 e:dispatched1 c:output1 e:dispatched2 c:output2 ");
  const BackToBackProgram both =
      MicroBatchProgram("both", {.inputs = 1, .count = 1, .slots = true, .expert_slots = true});
  EXPECT_EQ(both.program.operations(2).run_experts().output_slot(), "computed0");
  EXPECT_EQ(both.program.operations(3).combine().slot(), "computed0");
  const BackToBackProgram plain = MicroBatchProgram("plain", {.inputs = 1, .count = 2});
  EXPECT_EQ(plain.program.operations_size(), 8);
  EXPECT_EQ(plain.program.operations(4).dispatch().slot(), "");
}

TEST(BenchPrograms, EveryInputHasABarrierBeforeWhatIsTimed) {
  const BenchProgram program = DispatchProgram(2);
  ASSERT_EQ(program.program.operations_size(), 4);
  EXPECT_TRUE(program.program.operations(0).has_barrier());
  EXPECT_EQ(program.program.operations(1).dispatch().hidden(), "hidden0");
  EXPECT_EQ(program.program.operations(1).dispatch().plan(), "plan0");
  EXPECT_TRUE(program.program.operations(2).has_barrier());
  EXPECT_EQ(program.program.operations(3).dispatch().topk_experts(), "topk_experts1");
  ASSERT_THAT(TimedNames(program), ElementsAre("dispatch"));
  EXPECT_THAT(program.timed[0].operations, ElementsAre(ElementsAre(1), ElementsAre(3)));
}

TEST(BenchPrograms, ASavedPlanReplacesTheRoutes) {
  const v1::DispatchOperation dispatch = SavedPlanProgram(1).program.operations(1).dispatch();
  EXPECT_EQ(dispatch.saved_plan(), "plan0");
  EXPECT_EQ(dispatch.plan(), "");
  EXPECT_EQ(dispatch.topk_experts(), "");
}

TEST(BenchPrograms, OnlyCombineIsTimedAndWritesAnOutputPerInput) {
  const BenchProgram program = CombineProgram(2);
  ASSERT_THAT(TimedNames(program), ElementsAre("combine"));
  EXPECT_THAT(program.timed[0].operations, ElementsAre(ElementsAre(2), ElementsAre(5)));
  EXPECT_EQ(program.program.operations(2).combine().output(), "output0");
  EXPECT_EQ(program.program.operations(5).combine().output(), "output1");
}

TEST(BenchPrograms, StagedRowsGoOutByDispatchAndInByCombine) {
  const BenchProgram program = StagedProgram();
  ASSERT_THAT(TimedNames(program), ElementsAre("dispatch_staged", "combine_staged"));
  const v1::DispatchOperation& dispatch = program.program.operations(1).dispatch();
  EXPECT_EQ(dispatch.plan(), "plan0");
  EXPECT_FALSE(dispatch.rows_output().empty());
  EXPECT_EQ(program.program.operations(3).combine().rows(), dispatch.rows_output());
  EXPECT_EQ(program.program.operations(3).combine().output(), "output0");
}

TEST(BenchPrograms, APrefetchBesideADispatchIsJoinedBeforeTheNextBarrier) {
  const BenchProgram program = BesideProgram(2);
  ASSERT_THAT(TimedNames(program), ElementsAre("dispatch_beside_prefetch"));
  EXPECT_THAT(program.timed[0].operations, ElementsAre(ElementsAre(1, 2), ElementsAre(4, 5)));
  EXPECT_TRUE(program.program.ordered_by_waits());
  EXPECT_THAT(program.program.operations(2).waits_for(), ElementsAre(1));
  EXPECT_TRUE(program.program.operations(3).has_barrier());
  EXPECT_THAT(program.program.operations(3).waits_for(), ElementsAre(2));
}

TEST(BenchPrograms, ALayerIsTheSumOfItsFourOperations) {
  const BenchProgram program = BenchLayerProgram(2);
  ASSERT_THAT(TimedNames(program), ElementsAre("prefetch_weights", "run_experts", "layer"));
  EXPECT_THAT(program.timed[2].operations,
              ElementsAre(ElementsAre(1, 2, 3, 4), ElementsAre(6, 7, 8, 9)));
}

TEST(BenchPrograms, ACopyGoesWhereItIsSaid) {
  EXPECT_FALSE(CopyProgram(false).program.operations(1).probe_copy().to_next_rank());
  EXPECT_TRUE(CopyProgram(true).program.operations(1).probe_copy().to_next_rank());
  EXPECT_FALSE(CopyProgram(false).program.operations(1).probe_copy().alone());
  EXPECT_TRUE(CopyAloneProgram().program.operations(1).probe_copy().alone());
}

TEST(BenchPrograms, APrefetchIsTimedByItselfAndBehindADispatch) {
  const BenchProgram program = PrefetchProgram(2);
  ASSERT_THAT(TimedNames(program), ElementsAre("prefetch_weights", "dispatch_and_prefetch"));
  ASSERT_EQ(program.program.operations_size(), 10);
  EXPECT_THAT(program.timed[0].operations, ElementsAre(ElementsAre(1), ElementsAre(6)));
  EXPECT_THAT(program.timed[1].operations, ElementsAre(ElementsAre(3, 4), ElementsAre(8, 9)));
  EXPECT_EQ(program.program.operations(6).prefetch_weights().plan(), "plan1");
}

TEST(BenchPrograms, AReductionBeginsBehindABarrier) {
  const BenchProgram program = ReduceProgram(2);
  ASSERT_THAT(TimedNames(program), ElementsAre("reduce_gradients"));
  ASSERT_EQ(program.program.operations_size(), 4);
  EXPECT_THAT(program.timed[0].operations, ElementsAre(ElementsAre(1), ElementsAre(3)));
  EXPECT_TRUE(program.program.operations(2).has_barrier());
  EXPECT_EQ(program.program.operations(3).reduce_gradients().plan(), "plan1");
}

TEST(BackToBackPrograms, AreRoundsOfNothingButTheirOperation) {
  const BackToBackProgram planned = BackToBackDispatch(2);
  EXPECT_EQ(planned.count, 8);
  ASSERT_EQ(planned.program.operations_size(), 8);
  for (int i = 0; i < 8; ++i) {
    const v1::DispatchOperation& dispatch = planned.program.operations(i).dispatch();
    EXPECT_EQ(dispatch.hidden(), BenchHidden(i % 2));
    EXPECT_EQ(dispatch.saved_plan(), "");
  }
  const BackToBackProgram saved = BackToBackSavedPlan(2);
  EXPECT_EQ(saved.program.operations_size(), 8);
  EXPECT_EQ(saved.program.operations(7).dispatch().saved_plan(), "plan1");
}

TEST(BackToBackPrograms, CopiesAreOfAsManyRowsAsTheirInputHas) {
  const BackToBackProgram copies = BackToBackCopies({{3, 0}, {1, 2}});
  EXPECT_EQ(copies.count, 8);
  ASSERT_EQ(copies.program.operations_size(), 16);
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(copies.program.operations(2 * i).has_barrier());
    const auto& rows = copies.program.operations(2 * i + 1).probe_copy().rows();
    if (i % 2 == 0) {
      EXPECT_THAT(rows, ElementsAre(3, 0));
    } else {
      EXPECT_THAT(rows, ElementsAre(1, 2));
    }
  }
}

TEST(BackToBackPrograms, BarriersAreAsManyAsCopies) {
  const BackToBackProgram barriers = BackToBackBarriers(2);
  EXPECT_EQ(barriers.count, 8);
  ASSERT_EQ(barriers.program.operations_size(), 8);
  for (const v1::ProgramOperation& operation : barriers.program.operations()) {
    EXPECT_TRUE(operation.has_barrier());
  }
}

TEST(BackToBackPrograms, AStepDispatchesBeforeEveryCombineAndHasAnOutputForEach) {
  const BackToBackProgram step = BackToBackStep(2);
  EXPECT_EQ(step.count, 4);
  ASSERT_EQ(step.program.operations_size(), 8);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(step.program.operations(2 * i).dispatch().hidden(), BenchHidden(i % 2));
    const v1::CombineOperation& combine = step.program.operations(2 * i + 1).combine();
    EXPECT_EQ(combine.plan(), i % 2 == 0 ? "plan0" : "plan1");
    EXPECT_EQ(combine.output(), BenchOutput(i));
  }
}

std::vector<v1::OperationTiming> Timings(const std::vector<std::vector<int64_t>>& times_ns) {
  std::vector<v1::OperationTiming> timings(times_ns.size());
  for (size_t i = 0; i < times_ns.size(); ++i) {
    timings[i].mutable_duration_ns()->Add(times_ns[i].begin(), times_ns[i].end());
  }
  return timings;
}

TEST(TimesOf, LeavesTheWarmUpOutAndAddsWhatBelongsTogether) {
  const TimedOperation timed{"x", {{0, 1}, {2}}};
  const auto times_ns = TimesOf(
      timed,
      {Timings({{9, 1, 2}, {9, 10, 20}, {9, 5, 6}}), Timings({{9, 3, 4}, {9, 0, 0}, {9, 7, 8}})}, 1,
      2);
  ASSERT_TRUE(times_ns.ok()) << times_ns.status();
  EXPECT_THAT(*times_ns, ElementsAre(ElementsAre(11, 5, 22, 6), ElementsAre(3, 7, 4, 8)));
}

TEST(TimesOf, ARankThatReportsTooFewIsNamed) {
  const TimedOperation timed{"dispatch", {{0}}};
  const auto times_ns = TimesOf(timed, {Timings({{1, 2}}), Timings({{1}})}, 1, 1);
  EXPECT_THAT(std::string(times_ns.status().message()),
              HasSubstr("rank 1 reports no time of dispatch in iteration 2 of 2"));
}

TEST(TimesOf, AnIterationIsDividedByWhatItRepeats) {
  BackToBackProgram program;
  program.name = "dispatch_back_to_back";
  program.count = 4;
  auto times_ns = TimesOf(program, {{9, 40, 80}, {9, 44, 76}}, 1, 2);
  ASSERT_TRUE(times_ns.ok()) << times_ns.status();
  EXPECT_THAT(*times_ns, ElementsAre(ElementsAre(10, 20), ElementsAre(11, 19)));
  times_ns = TimesOf(program, {{9, 40, 80}, {9, 44}}, 1, 2);
  EXPECT_THAT(std::string(times_ns.status().message()),
              HasSubstr("rank 1 reports 2 iterations of dispatch_back_to_back, expected 3"));
}

}  // namespace
}  // namespace perigee
