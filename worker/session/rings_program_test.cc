// Programs whose rows go through output slots, on the host backend: the layer of kLayerProgram.
#include <cstdlib>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"
#include "worker/testing/session_group.h"
#include "worker/testing/small_layer.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kRanks = 3;

uint64_t Seed() {
  const char* given = std::getenv("PERIGEE_SEED");
  return given ? std::strtoull(given, nullptr, 0) : std::random_device()();
}

std::string Dispatch(int i) {
  return absl::StrCat(
      "operations { dispatch { hidden: 'hidden' topk_experts: 'topk' "
      "route_weights: 'weights' plan: 'p",
      i, "' slot: 's", i, "' } }");
}
// `version` of the weights; the results to an expert-output slot, or to the shard.
std::string Experts(int i, bool into_slot, int version = 9) {
  return absl::StrCat("operations { prefetch_weights { plan: 'p", i,
                      "' layer: 0 weights_version: 9 } } operations { run_experts { plan: 'p", i,
                      "' layer: 0 weights_version: ", version,
                      " apply_route_weights: true slot: 's", i, "'",
                      into_slot ? absl::StrCat(" output_slot: 'e", i, "'") : "", " } }");
}
std::string Combine(int i, bool from_slot) {
  return absl::StrCat("operations { combine { plan: 'p", i, "' output: 'o", i, "'",
                      from_slot ? absl::StrCat(" slot: 'e", i, "'") : "", " } }");
}

class RingsProgramTest : public ::testing::Test {
 protected:
  RingsProgramTest()
      : seed_(Seed()),
        layer_(kRanks, seed_),
        group_(kRanks, [](int32_t) { return CreateHostBackend(); }) {
    v1::BufferShape shape = layer_.shape();
    shape.set_dispatch_output_slots(2);
    shape.set_expert_output_slots(1);
    group_.MakeBuffer(shape);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      Load(rank, layer_.Inputs(rank));
      Load(rank, layer_.Weights(rank));
    }
  }

  void Load(int32_t rank, const std::vector<LayerTensor>& tensors) {
    for (const LayerTensor& tensor : tensors) {
      const auto* bytes = reinterpret_cast<const std::byte*>(tensor.bytes.data());
      const absl::Status status = group_.Write(rank, tensor.target, tensor.header,
                                               absl::MakeConstSpan(bytes, tensor.bytes.size()));
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  void ExpectWell(const std::string& program) {
    for (const ProgramOutcome& outcome : group_.Execute(program)) {
      ASSERT_EQ(outcome.status.code(), 0) << outcome.status.message();
    }
  }
  std::string Output(int32_t rank, const std::string& name) {
    v1::TensorTarget target = layer_.Inputs(rank)[0].target;
    target.set_tensor(name);
    const absl::StatusOr<std::string> output = group_.Read(rank, target);
    EXPECT_TRUE(output.ok()) << output.status();
    return output.value_or("");
  }
  // Bit for bit.
  void ExpectOutputsOfALayer(int count) {
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const std::string wanted = Output(rank, "output");
      for (int i = 0; i < count; ++i) EXPECT_EQ(Output(rank, absl::StrCat("o", i)), wanted) << i;
    }
  }

  const uint64_t seed_;
  const SmallLayer layer_;
  SessionGroup group_;
};

TEST_F(RingsProgramTest, PendingDispatchesGiveTheBitsOfALayer) {
  SCOPED_TRACE(testing::Message() << "PERIGEE_SEED=" << seed_);
  ExpectWell(kLayerProgram);
  // Each is dispatched before the last one is computed.
  std::string program = Dispatch(0);
  for (int i = 0; i < 5; ++i) {
    if (i + 1 < 5) absl::StrAppend(&program, Dispatch(i + 1));
    absl::StrAppend(&program, Experts(i, i % 2 == 0), Combine(i, i % 2 == 0));
  }
  ExpectWell(program + " iterations: 3");
  ExpectOutputsOfALayer(5);
}

TEST_F(RingsProgramTest, AProgramThatNeedsMoreSlotsRunsNowhere) {
  std::string program;
  for (int i = 0; i < 3; ++i) absl::StrAppend(&program, Dispatch(i));
  for (int i = 0; i < 3; ++i) absl::StrAppend(&program, Experts(i, false), Combine(i, false));
  for (const ProgramOutcome& outcome : group_.Execute(program)) {
    EXPECT_EQ(outcome.status.reason(), "INVALID_PROGRAM");
    EXPECT_THAT(outcome.status.message(),
                HasSubstr("the program needs 3 dispatch-output slots, the buffer has 2"));
  }
}

// What a failed program has taken is free for the next one, on every rank alike.
TEST_F(RingsProgramTest, AProgramThatFailsGivesItsSlotsUp) {
  SCOPED_TRACE(testing::Message() << "PERIGEE_SEED=" << seed_);
  ExpectWell(kLayerProgram);
  const std::string wrong = Dispatch(0) + Dispatch(1) + Experts(0, true, /*version=*/4) +
                            Combine(0, true) + Experts(1, true) + Combine(1, true);
  for (int again = 0; again < 3; ++again) {
    for (const ProgramOutcome& outcome : group_.Execute(wrong)) {
      EXPECT_EQ(outcome.status.reason(), "STALE_WEIGHTS") << outcome.status.message();
    }
    ExpectWell(Dispatch(0) + Experts(0, again % 2 == 0) + Combine(0, again % 2 == 0));
    ExpectOutputsOfALayer(1);
  }
}

}  // namespace
}  // namespace perigee
