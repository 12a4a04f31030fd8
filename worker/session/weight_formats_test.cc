// Weights that workers move and do not compute with, from a client's upload into a peer's slots.
#include <cstring>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"
#include "worker/memory/buffer_shape.h"
#include "worker/ops/tensor_spec.h"
#include "worker/testing/session_group.h"
#include "worker/testing/small_layer.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kRanks = 3;
constexpr uint64_t kVersion = 9;
constexpr char kPrefetchProgram[] = R"pb(
  operations { dispatch { hidden: "hidden" topk_experts: "topk" plan: "p" } }
  operations { prefetch_weights { plan: "p" layer: 0 weights_version: 9 } }
)pb";

class WeightFormatsTest : public ::testing::TestWithParam<v1::BufferShape::WeightFormat> {
 protected:
  WeightFormatsTest()
      : layer_(kRanks, seed_), group_(kRanks, [](int32_t) { return CreateHostBackend(); }) {
    std::cout << "seed " << seed_ << "\n";
    v1::BufferShape wire = layer_.shape();
    wire.set_weight_format(GetParam());
    wire.set_weight_scales(true);
    group_.MakeBuffer(wire);
    shape_ = *ParseBufferShape(wire, kRanks);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      for (const LayerTensor& tensor : layer_.Inputs(rank)) {
        EXPECT_TRUE(group_.Write(rank, tensor.target, tensor.header, Bytes(tensor.bytes)).ok());
      }
    }
  }
  static absl::Span<const std::byte> Bytes(const std::string& text) {
    return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(text.data()), text.size());
  }
  // Random bytes for a part of a rank's home weights.
  void Load(int32_t rank, v1::WeightTarget::Kind kind) {
    const TensorSpec spec = WeightMatrixSpec(kind, shape_);
    std::string& bytes = home_[{rank, WeightPart(kind)}];
    bytes.resize(spec.size_bytes);
    for (char& byte : bytes) byte = static_cast<char>(random_());
    const absl::Status status =
        group_.Write(rank, WeightsTarget(0, kVersion, kind), ToHeader(spec), Bytes(bytes));
    EXPECT_TRUE(status.ok()) << status;
  }
  void ExpectSlots() {
    const WeightsShape weights = shape_.weights();
    const int32_t slots = shape_.geometry.slots;
    const int32_t home_experts = shape_.geometry.experts_per_rank();
    const WeightsLayout layout = WeightsLayout::Slots(weights, slots);
    int replicas = 0;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      for (int32_t slot = 0; slot < slots; ++slot) {
        const int32_t expert = layer_.plan().experts_to_copy[rank][slot];
        if (expert < 0) continue;
        ++replicas;
        for (int part = 0; part < kWeightParts; ++part) {
          const size_t bytes = weights.part_bytes(part);
          const std::byte* found =
              group_.buffer(rank).forming_memory().slots() + layout.part(part) + slot * bytes;
          const std::string& home = home_[{expert / home_experts, part}];
          EXPECT_EQ(std::memcmp(found, home.data() + expert % home_experts * bytes, bytes), 0)
              << "rank " << rank << " slot " << slot << " part " << part;
        }
      }
    }
    EXPECT_GT(replicas, 0);
  }

  const uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};
  const SmallLayer layer_;
  SessionGroup group_;
  BufferShape shape_;
  std::map<std::pair<int32_t, int>, std::string> home_;  // by rank and part
};

TEST_P(WeightFormatsTest, AnIncompleteSetIsRefusedAndACompleteOneIsMoved) {
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    for (int kind = v1::WeightTarget::GATE; kind <= v1::WeightTarget::DOWN_SCALES; ++kind) {
      if (rank == 1 && kind == v1::WeightTarget::UP_SCALES) continue;
      Load(rank, static_cast<v1::WeightTarget::Kind>(kind));
    }
  }
  const std::vector<ProgramOutcome> outcomes = group_.Execute(kPrefetchProgram);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const v1::RankStatus& status = outcomes[rank].status;
    EXPECT_EQ(status.reason(), rank == 1 ? "STALE_WEIGHTS" : "DECLINED") << status.message();
    EXPECT_THAT(status.message(),
                HasSubstr(rank == 1 ? "version 9 of layer 0 is incomplete: UP_SCALES missing"
                                    : "rank 1 (workers/w1)"));
  }
  Load(1, v1::WeightTarget::UP_SCALES);
  for (const ProgramOutcome& outcome : group_.Execute(kPrefetchProgram)) {
    EXPECT_EQ(outcome.status.code(), 0) << outcome.status.message();
  }
  ExpectSlots();
}

TEST_P(WeightFormatsTest, NothingIsComputedFromThem) {
  for (const ProgramOutcome& outcome : group_.Execute(kLayerProgram)) {
    EXPECT_EQ(outcome.status.reason(), "INVALID_PROGRAM");
    EXPECT_THAT(outcome.status.message(), HasSubstr("weights are not bf16"));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, WeightFormatsTest,
                         ::testing::Values(v1::BufferShape::WEIGHT_FORMAT_8BIT,
                                           v1::BufferShape::WEIGHT_FORMAT_MXFP4));

}  // namespace
}  // namespace perigee
