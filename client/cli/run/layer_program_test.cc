#include "client/cli/run/layer_program.h"

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

}  // namespace
}  // namespace perigee
