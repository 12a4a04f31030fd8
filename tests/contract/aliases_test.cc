// Rows and their weights where they lie in the shard, as callers that copy nothing use them: which
// operation ends their life, and what is no such place. A group of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/layout/shard_layout.h"
#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/gradient_store.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr WeightsShape kWeights = {16, 8};
constexpr Geometry kGeometry = {
    .ranks = 1, .experts = 2, .tokens = 4, .topk = 1, .slots = 2, .token_padding = 1};

class AliasContractTest : public ContractTest {
 public:
  AliasContractTest()
      : random_(TestSeed()),
        store_(backends(), kGeometry, kWeights, /*own_mappings=*/false),
        gradients_(backends(), kGeometry, kWeights, /*own_mappings=*/false),
        input_(NamedInputs(PlainGroup(random_, kGeometry), kWeights.hidden, 1)[0]),
        tokens_(backend(0), input_.hidden),
        topk_experts_(backend(0), input_.topk_experts),
        route_weights_(backend(0), input_.route_weights),
        other_rows_(backend(0), size_t(kGeometry.logical_rows()) * kWeights.hidden),
        hidden_(backend(0), size_t{kGeometry.tokens} * kWeights.hidden),
        gathered_(backend(0), kGeometry.routes()) {
    const auto matrix = [&] { return NormalNumbers(random_, kWeights.matrix_elements(), 0.1); };
    store_.Load(0, 1, std::vector<ExpertBits>(2, {matrix(), matrix(), matrix()}));
  }

  // A data path on fresh memory, with a plan q and then a plan p, whose rows and weights the shard
  // holds.
  void Start() {
    path_.reset();
    DataPathOptions options;
    options.geometry = kGeometry;
    options.hidden = kWeights.hidden;
    options.buffer = BufferId(3);
    options.generation = Generation(7);
    auto shard = backend(0).AllocateShared(
        ShardLayout::Create(kGeometry, kWeights.hidden).size_bytes, PeerAccess::kReadWrite);
    ASSERT_TRUE(shard.ok()) << shard.status();
    shard_ = *std::move(shard);
    options.shards = {shard_->data()};
    auto path = backend(0).CreateDataPath(options);
    ASSERT_TRUE(path.ok()) << path.status();
    path_ = *std::move(path);
    next_ = Sequence();
    for (PlanPtr* plan : {&q_, &p_}) {
      auto made = path_->Dispatch(Next(), Tokens(true), {});
      ASSERT_TRUE(made.ok()) << made.status();
      *plan = *std::move(made);
    }
  }
  Sequence Next() { return next_ = next_.Next(); }
  DispatchInput Tokens(bool weights) const {
    return {tokens_.data(), topk_experts_.data(), weights ? route_weights_.data() : nullptr,
            kGeometry.tokens};
  }
  // One that is refused leaves its sequence to the next.
  absl::Status Combine(const BFloat16* rows, const float* weights) {
    const Sequence sequence = next_.Next();
    absl::Status status =
        path_->Combine(sequence, p_, {rows, weights},
                       {hidden_.data(), weights != nullptr ? gathered_.data() : nullptr});
    if (status.ok()) next_ = sequence;
    return status;
  }

  // What may come between the dispatch and the use.
  absl::Status Nothing() { return absl::OkStatus(); }
  absl::Status Barrier() { return path_->Barrier(Next()); }
  absl::Status Prefetch() { return path_->PrefetchWeights(Next(), p_, store_.WeightsOf(0, 0, 1)); }
  absl::Status Reduce() { return path_->ReduceGradients(Next(), p_, gradients_.GradientsOf(0, 0)); }
  absl::Status Experts(BFloat16* to) {
    return path_->RunExperts(p_, store_.WeightsOf(0, 0, 1), {path_->rows(), nullptr, to});
  }
  absl::Status ExpertsElsewhere() { return Experts(other_rows_.data()); }
  absl::Status ExpertsInPlace() { return Experts(path_->rows()); }
  absl::Status DispatchP() { return path_->DispatchWithPlan(Next(), p_, Tokens(true), {}); }
  absl::Status DispatchPPlain() { return path_->DispatchWithPlan(Next(), p_, Tokens(false), {}); }
  absl::Status DispatchQ() { return path_->DispatchWithPlan(Next(), q_, Tokens(true), {}); }
  absl::Status DispatchAnew() { return path_->Dispatch(Next(), Tokens(true), {}).status(); }
  absl::Status CombineInPlace() { return Combine(path_->rows(), nullptr); }
  absl::Status CombineOthers() { return Combine(other_rows_.data(), nullptr); }
  absl::Status Probe() { return path_->ProbeCopy(CopyProbe::kOwnShard, 1); }

  std::mt19937_64 random_;
  ExpertStore store_;
  GradientStore gradients_;
  const RankInput input_;
  const DeviceArray<BFloat16> tokens_;
  const DeviceArray<int32_t> topk_experts_;
  const DeviceArray<float> route_weights_;
  const DeviceArray<BFloat16> other_rows_;
  const DeviceArray<BFloat16> hidden_;
  const DeviceArray<float> gathered_;
  std::unique_ptr<Memory> shard_;
  std::unique_ptr<DataPath> path_;
  PlanPtr p_, q_;
  Sequence next_;
};

// By table: what came behind the dispatch, and whether its rows and weights may be used after it.
TEST_P(AliasContractTest, LivesUntilTheNextOperationThatWritesTheShard) {
  const struct {
    const char* behind;
    absl::Status (AliasContractTest::*run)();
    bool lives;
  } cases[] = {
      {"nothing", &AliasContractTest::Nothing, true},
      {"barrier", &AliasContractTest::Barrier, true},
      {"prefetch", &AliasContractTest::Prefetch, true},
      {"reduce_gradients", &AliasContractTest::Reduce, true},
      {"run_experts out of place", &AliasContractTest::ExpertsElsewhere, true},
      {"run_experts in place", &AliasContractTest::ExpertsInPlace, true},
      {"dispatch by p", &AliasContractTest::DispatchP, true},
      {"dispatch by p without weights", &AliasContractTest::DispatchPPlain, true},
      {"dispatch by q", &AliasContractTest::DispatchQ, false},
      {"dispatch that plans", &AliasContractTest::DispatchAnew, false},
      {"combine where they lie", &AliasContractTest::CombineInPlace, false},
      {"combine of other rows", &AliasContractTest::CombineOthers, false},
      {"probe_copy", &AliasContractTest::Probe, false},
  };
  for (const auto& one : cases) {
    for (const bool weights : {false, true}) {
      SCOPED_TRACE(testing::Message() << one.behind << ", then " << (weights ? "weights" : "rows"));
      Start();
      const absl::Status behind = (this->*one.run)();
      ASSERT_TRUE(behind.ok()) << behind;
      const absl::Status status = weights ? Combine(other_rows_.data(), path_->row_weights())
                                          : Combine(path_->rows(), nullptr);
      if (one.lives) {
        EXPECT_TRUE(status.ok()) << status;
        continue;
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(
          std::string(status.message()),
          HasSubstr(weights ? "the shard holds row weights of" : "the shard holds rows of"));
      EXPECT_FALSE(path_->last_error().has_value()) << "refused before anything is touched";
    }
  }
}

TEST_P(AliasContractTest, RunExpertsNeedsLivingRowsToo) {
  Start();
  ASSERT_TRUE(DispatchQ().ok());
  EXPECT_EQ(ExpertsInPlace().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(DispatchP().ok());
  EXPECT_TRUE(ExpertsInPlace().ok());
}

TEST_P(AliasContractTest, APlaceWithinTheShardIsNone) {
  Start();
  EXPECT_THAT(std::string(Combine(path_->rows() + kWeights.hidden, nullptr).message()),
              HasSubstr("rows lies in the shard"));
  EXPECT_THAT(std::string(Combine(other_rows_.data(), path_->row_weights() + 1).message()),
              HasSubstr("row weights lies in the shard"));
  EXPECT_TRUE(CombineInPlace().ok()) << "nothing was touched";
}

INSTANTIATE_TEST_SUITE_P(Backends, AliasContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
