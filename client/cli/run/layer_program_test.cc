#include "client/cli/run/layer_program.h"

#include <vector>

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(LayerProgramTest, RunsTheWholeLayer) {
  const v1::Program program = LayerProgram(2, 5, 7);
  EXPECT_EQ(program.iterations(), 7);
  ASSERT_EQ(program.operations_size(), 4);
  EXPECT_TRUE(program.operations(0).has_dispatch());
  EXPECT_EQ(program.operations(1).prefetch_weights().layer(), 2);
  EXPECT_EQ(program.operations(2).run_experts().weights_version(), 5u);
  EXPECT_TRUE(program.operations(2).run_experts().apply_route_weights());
  EXPECT_EQ(program.operations(3).combine().plan(), program.operations(0).dispatch().plan());
}

// Where a prefetch waits for its dispatch in a program that is ordered by waits, it begins when the
// plan is made.
TEST(LayerProgramTest, APrefetchMayBeginBesideTheRowsOfItsDispatch) {
  const v1::Program program = LayerProgram(2, 5, 7);
  EXPECT_TRUE(program.ordered_by_waits());
  EXPECT_EQ(program.operations(0).waits_for_size(), 0);
  for (int index = 1; index < program.operations_size(); ++index) {
    ASSERT_EQ(program.operations(index).waits_for_size(), 1);
    EXPECT_EQ(program.operations(index).waits_for(0), index - 1);
  }
  EXPECT_FALSE(LayerProgram(2, 5, 7, DispatchPath::kDirect).ordered_by_waits());
  EXPECT_FALSE(LayerProgram(2, 5, 7, DispatchPath::kPull).ordered_by_waits());
}

TEST(LayerProgramTest, PublishesDirectlyWhereAsked) {
  const v1::Program dispatched = LayerProgram(2, 5, 7);
  const v1::Program direct = LayerProgram(2, 5, 7, DispatchPath::kDirect);
  ASSERT_EQ(direct.operations_size(), 7);
  const v1::DispatchOperation& dispatch = dispatched.operations(0).dispatch();
  const std::string& target = direct.operations(0).prepare_dispatch().target();
  EXPECT_EQ(direct.operations(0).prepare_dispatch().topk_experts(), dispatch.topk_experts());
  EXPECT_EQ(direct.operations(1).prepare_publication().target(), target);
  EXPECT_EQ(direct.operations(1).prepare_publication().route_weights(), dispatch.route_weights());
  EXPECT_EQ(direct.operations(2).store_rows().target(), target);
  EXPECT_EQ(direct.operations(2).store_rows().hidden(), dispatch.hidden());
  EXPECT_EQ(direct.operations(3).publish().target(), target);
  EXPECT_EQ(direct.operations(3).publish().plan(), dispatch.plan());
  EXPECT_EQ(direct.operations(6).combine().plan(), dispatch.plan());
}

TEST(LayerProgramTest, FetchesFromTheSourceWhereAsked) {
  const v1::Program dispatched = LayerProgram(2, 5, 7);
  const v1::Program fetched = LayerProgram(2, 5, 7, DispatchPath::kPull);
  ASSERT_EQ(fetched.operations_size(), 5);
  const v1::DispatchOperation& dispatch = dispatched.operations(0).dispatch();
  const v1::PrepareSourceOperation& prepare = fetched.operations(0).prepare_source();
  EXPECT_EQ(prepare.topk_experts(), dispatch.topk_experts());
  EXPECT_EQ(prepare.hidden(), dispatch.hidden());
  EXPECT_EQ(prepare.route_weights(), dispatch.route_weights());
  EXPECT_EQ(fetched.operations(1).materialise().source(), prepare.source());
  EXPECT_EQ(fetched.operations(1).materialise().plan(), dispatch.plan());
  EXPECT_EQ(fetched.operations(4).combine().plan(), dispatch.plan());
}

TEST(LayerProgramTest, OverlappedTheRowsDoNotWaitForTheRest) {
  const v1::Program program = LayerProgram(2, 5, 7, DispatchPath::kDirectOverlapped);
  ASSERT_EQ(program.operations_size(), 7);
  EXPECT_TRUE(program.ordered_by_waits());
  const auto waits = [&](int index) {
    const auto& all = program.operations(index).waits_for();
    return std::vector<int>(all.begin(), all.end());
  };
  EXPECT_EQ(waits(1), std::vector<int>({0}));
  EXPECT_EQ(waits(2), std::vector<int>({0}));
  EXPECT_EQ(waits(3), std::vector<int>({1, 2}));
  EXPECT_EQ(waits(4), std::vector<int>({3}));
  EXPECT_EQ(waits(6), std::vector<int>({5}));
}

}  // namespace
}  // namespace perigee
