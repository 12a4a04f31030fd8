// Prefetch of weights that no backend computes with: 8-bit and MXFP4, with block scales and
// without. What a slot then holds is what its expert's home holds, bit for bit, and nothing else
// has changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/contract/contract_backends.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/rank_backends.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kLayer = 3;
constexpr uint64_t kVersion = 11;
constexpr std::byte kPoison{0xa5};

class WeightFormatsContractTest : public ContractTest {
 protected:
  WeightFormatsContractTest() : random_(TestSeed()) {
    geometry_.ranks = std::min(4, GetParam().max_ranks);
    input_ = PlainGroup(random_, geometry_);
    // The first half of the experts has all the rows, so that there are replicas.
    for (int32_t& expert : input_.topk_experts) expert /= 2;
  }

  void Start(const WeightsShape& shape) {
    shape_ = shape;
    RankGroupOptions options;
    options.geometry = geometry_;
    options.hidden = shape.hidden;
    options.own_mappings = GetParam().own_mappings;
    group_ = std::make_unique<RankGroup>(backends(), options);
    store_ = std::make_unique<ExpertStore>(backends(), geometry_, shape, options.own_mappings);
    experts_.assign(geometry_.experts, {});
    for (ExpertStore::ExpertParts& expert : experts_) {
      for (int part = 0; part < kWeightParts; ++part) {
        expert[part].resize(shape.part_bytes(part));
        for (std::byte& byte : expert[part]) byte = static_cast<std::byte>(random_());
      }
    }
    store_->Load(kLayer, kVersion, experts_);
    for (int32_t rank = 0; rank < geometry_.ranks; ++rank) store_->PoisonSlots(rank, kPoison);
    made_ = group_->Dispatch(NamedInputs(input_, shape.hidden, 1), Copy::kInPlace);
    for (const DispatchResult& result : made_) ASSERT_TRUE(result.status.ok()) << result.status;
  }
  std::vector<absl::Status> Prefetch() {
    const Sequence sequence = group_->NextSequence();
    return group_->OnAll([&](int32_t rank) {
      return group_->path(rank).PrefetchWeights(sequence, made_[rank].plan,
                                                store_->WeightsOf(rank, kLayer, kVersion));
    });
  }
  void ExpectSlots() {
    ExpertStore::ExpertParts poison;
    for (int part = 0; part < kWeightParts; ++part) {
      poison[part].assign(shape_.part_bytes(part), kPoison);
    }
    int replicas = 0, unused = 0;
    for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
      for (int32_t slot = 0; slot < geometry_.slots; ++slot) {
        const int32_t expert = made_[rank].tensors.experts_to_copy[rank * geometry_.slots + slot];
        const ExpertStore::ExpertParts found = store_->slot_parts(rank, slot);
        EXPECT_TRUE(found == (expert < 0 ? poison : experts_[expert]))
            << "rank " << rank << " slot " << slot << " expert " << expert;
        const SlotTag tag = store_->tag(rank, slot);
        if (expert >= 0) {
          EXPECT_EQ(tag, (SlotTag{kVersion, kLayer, expert}));
        }
        (expert < 0 ? unused : replicas) += 1;
      }
    }
    EXPECT_EQ(replicas > 0, geometry_.ranks > 1);
    EXPECT_GT(unused, 0);
  }

  Geometry geometry_ = {
      .ranks = 4, .experts = 8, .tokens = 100, .topk = 3, .slots = 3, .token_padding = 8};
  std::mt19937_64 random_;
  GroupInput input_;
  WeightsShape shape_;
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<ExpertStore> store_;
  std::vector<ExpertStore::ExpertParts> experts_;  // [E]
  std::vector<DispatchResult> made_;
};

TEST_P(WeightFormatsContractTest, SlotsHoldTheBitsOfTheirHomes) {
  const std::pair<int32_t, int32_t> sizes[] = {{128, 256}, {24, 40}, {136, 8}, {256, 72}};
  for (const auto& [hidden, intermediate] : sizes) {
    for (const WeightFormat format : {WeightFormat::k8Bit, WeightFormat::kMxfp4}) {
      for (const bool scales : {false, true}) {
        SCOPED_TRACE(testing::Message() << hidden << " x " << intermediate << " format "
                                        << static_cast<int>(format) << " scales " << scales);
        Start({hidden, intermediate, format, scales});
        ExpectOk(Prefetch());
        ExpectSlots();
      }
    }
  }
}

TEST_P(WeightFormatsContractTest, ExpertsAreComputedFromBFloat16Alone) {
  Start({24, 40, WeightFormat::kMxfp4, true});
  ExpectOk(Prefetch());
  DataPath& path = group_->path(0);
  const absl::Status status = path.RunExperts(made_[0].plan, store_->WeightsOf(0, kLayer, kVersion),
                                              {path.rows(), nullptr, path.rows()});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("weights are MXFP4, expected bf16"));
}

TEST_P(WeightFormatsContractTest, BFloat16HasNoScales) {
  Start({24, 40});
  ExpertWeights weights = store_->WeightsOf(0, kLayer, kVersion);
  weights.shape.scales = true;
  const absl::Status status =
      group_->path(0).PrefetchWeights(group_->NextSequence(), made_[0].plan, weights);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("scales, expected none"));
}

INSTANTIATE_TEST_SUITE_P(Backends, WeightFormatsContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
