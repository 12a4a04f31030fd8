// What is refused before anything is touched, by one rank for itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/layout/shard_layout.h"
#include "tests/contract/device_array.h"
#include "tests/contract/early_end_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

class RefusalsContractTest : public EarlyEndTest {};

TEST_P(RefusalsContractTest, AnOldSequenceIsRefused) {
  ExpectOk(Barrier());
  for (uint64_t old : {0, 1}) {
    const absl::Status status = group_->path(0).Barrier(Sequence(old));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not after 1"));
    EXPECT_FALSE(group_->path(0).last_error().has_value());
  }
  ExpectNextWorks();
}

TEST_P(RefusalsContractTest, BadDispatchInputIsRefused) {
  DataPath& path = group_->path(0);
  const DeviceArray<BFloat16> hidden(backend(0), inputs_[0].hidden);
  const DeviceArray<int32_t> topk_experts(backend(0), inputs_[0].topk_experts);
  const Sequence sequence = group_->NextSequence();
  const auto dispatch = [&](const DispatchInput& in, const DispatchOutput& out) {
    const absl::Status status = path.Dispatch(sequence, in, out).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_FALSE(path.last_error().has_value());
    return std::string(status.message());
  };
  EXPECT_THAT(dispatch({hidden.data(), topk_experts.data(), nullptr, 7}, {}),
              HasSubstr("token count of rank 0 is 7, expected 0 to 6"));
  EXPECT_THAT(dispatch({hidden.data(), topk_experts.data(), nullptr, -1}, {}),
              HasSubstr("token count of rank 0 is -1"));
  EXPECT_THAT(dispatch({nullptr, topk_experts.data(), nullptr, 6}, {}),
              HasSubstr("hidden is null"));
  EXPECT_THAT(dispatch({hidden.data(), nullptr, nullptr, 6}, {}),
              HasSubstr("topk_experts is null"));
  EXPECT_THAT(dispatch({path.rows(), topk_experts.data(), nullptr, 6}, {}),
              HasSubstr("hidden lies in the shard"));
  EXPECT_THAT(dispatch({hidden.data(), topk_experts.data(), nullptr, 6}, {path.rows(), nullptr}),
              HasSubstr("output rows lies in the shard"));
  ExpectOk(group_->OnAll([&](int32_t rank) { return group_->path(rank).Barrier(sequence); }));
}

TEST_P(RefusalsContractTest, ASavedPlanFixesTheTokenCount) {
  const std::vector<DispatchResult> made = Dispatch();
  const DeviceArray<BFloat16> hidden(backend(0), inputs_[0].hidden);
  const absl::Status status = group_->path(0).DispatchWithPlan(
      group_->NextSequence(), made[0].plan, {hidden.data(), nullptr, nullptr, 5}, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("token count of rank 0 is 5, its plan has 6"));
}

TEST_P(RefusalsContractTest, BadOptionsAreRefused) {
  const auto create = [&](const std::function<void(DataPathOptions&)>& spoil) {
    DataPathOptions options;
    options.geometry = {.ranks = 1, .experts = 4, .tokens = 2, .topk = 1};
    options.hidden = 16;
    options.buffer = BufferId(1);
    options.generation = Generation(1);
    auto shard = backend(0).AllocateShared(ShardLayout::Create(options.geometry, 16).size_bytes,
                                           PeerAccess::kReadWrite);
    EXPECT_TRUE(shard.ok());
    options.shards = {(*shard)->data()};
    spoil(options);
    const auto path = backend(0).CreateDataPath(options);
    EXPECT_EQ(path.status().code(), absl::StatusCode::kInvalidArgument) << path.status();
    return std::string(path.status().message());
  };
  EXPECT_THAT(create([](auto& o) { o.geometry.experts = 0; }), HasSubstr("experts is 0"));
  EXPECT_THAT(create([](auto& o) { o.hidden = 12; }), HasSubstr("hidden size is 12"));
  EXPECT_THAT(create([](auto& o) { o.rank = RankId(1); }), HasSubstr("rank is 1"));
  EXPECT_THAT(create([](auto& o) { o.generation = Generation(0); }), HasSubstr("generation 0"));
  EXPECT_THAT(create([](auto& o) { o.shards.clear(); }), HasSubstr("0 shards, expected 1"));
  EXPECT_THAT(create([](auto& o) { o.shards[0] = nullptr; }), HasSubstr("shard of rank 0 is null"));
  EXPECT_THAT(create([](auto& o) { o.threads = 0; }), HasSubstr("threads is 0"));
  EXPECT_THAT(create([](auto& o) { o.operation_timeout = absl::ZeroDuration(); }),
              HasSubstr("operation timeout is 0"));
}

TEST_P(RefusalsContractTest, AUsedShardIsRefused) {
  ExpectOk(Barrier());
  DataPathOptions options;
  options.geometry = kGeometry;
  options.hidden = group_->hidden();
  options.buffer = BufferId(3);
  options.generation = Generation(8);
  options.shards.assign(kRanks, group_->shard(0));
  const auto path = backend(0).CreateDataPath(options);
  EXPECT_EQ(path.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(path.status().message()),
              HasSubstr("shard of rank 0 has been used up to sequence 1, expected zeroed memory"));
}

INSTANTIATE_TEST_SUITE_P(Backends, RefusalsContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
