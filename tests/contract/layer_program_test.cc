// The program of `perigee run moe-layer`: operations that may overlap leave the same bits as the
// same operations one after the other. What overlaps does so where operations queue; that a
// prefetch beside a dispatch brings the same weights there, queued_test shows.
#include "client/cli/run/layer_program.h"

#include <string>
#include <vector>

#include "client/lib/path_selector.h"
#include "gtest/gtest.h"
#include "worker/testing/session_host_fixture.h"

namespace perigee {
namespace {

// The layer's tensors, by the names of the command.
LayerTensor Renamed(LayerTensor tensor) {
  if (tensor.target.tensor() == "topk") tensor.target.set_tensor(kTopkExpertsTensor);
  if (tensor.target.tensor() == "weights") tensor.target.set_tensor(kRouteWeightsTensor);
  return tensor;
}

class LayerProgramTest : public SessionHostTest {
 protected:
  LayerProgramTest() : SessionHostTest(/*source_storage=*/true) {
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      std::vector<LayerTensor> inputs;
      for (const LayerTensor& input : layer_.Inputs(rank)) inputs.push_back(Renamed(input));
      Load(rank, inputs);
    }
  }

  // What the program leaves in its output on every rank.
  std::vector<std::string> OutputsOf(const v1::Program& program) {
    SCOPED_TRACE(testing::Message() << "PERIGEE_SEED=" << seed_);
    ExpectAllWell(group_.Execute(program.ShortDebugString()));
    std::vector<std::string> outputs;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const auto output = group_.Read(rank, NamedTarget(kOutputTensor));
      EXPECT_TRUE(output.ok()) << output.status();
      outputs.push_back(output.ok() ? *output : "");
    }
    return outputs;
  }
};

TEST_F(LayerProgramTest, OverlappedOperationsLeaveTheSameBits) {
  constexpr uint64_t kVersion = 9;  // of the small layer
  v1::Program in_order = LayerProgram(0, kVersion, 2);
  in_order.set_ordered_by_waits(false);
  for (auto& operation : *in_order.mutable_operations()) operation.clear_waits_for();
  const std::vector<std::string> expected = OutputsOf(in_order);
  // The direct ones need the tokens of a coordinator: layer_run_test has them.
  for (const DispatchPath path : {DispatchPath::kOrdinary, DispatchPath::kPull}) {
    SCOPED_TRACE(PathName(path));
    EXPECT_EQ(OutputsOf(LayerProgram(0, kVersion, 2, path)), expected);
  }
}

}  // namespace
}  // namespace perigee
