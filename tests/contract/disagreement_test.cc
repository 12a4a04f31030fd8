// Ends that all ranks reach together, at one sequence: a bad route, statements that differ, a rank
// that declines or is asked to cancel. The next operation works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/layout/shard_layout.h"
#include "tests/contract/device_array.h"
#include "tests/contract/early_end_fixture.h"
#include "tests/contract/rank_backends.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

class DisagreementContractTest : public EarlyEndTest {};

TEST_P(DisagreementContractTest, ABadRouteEndsTheDispatchOnEveryRank) {
  for (int32_t value : {-2, kGeometry.experts, INT32_MIN, INT32_MAX}) {
    SCOPED_TRACE(value);
    Start(absl::Seconds(120));
    const std::vector<RankInput> good = inputs_;
    inputs_[2].topk_experts[4 * kGeometry.topk + 1] = value;
    inputs_[2].topk_experts[5 * kGeometry.topk] = value;  // the first one is named
    std::vector<absl::Status> statuses;
    for (const DispatchResult& result : group_->Dispatch(inputs_, Copy::kInPlace)) {
      statuses.push_back(result.status);
    }
    ExpectAll(
        statuses, absl::StatusCode::kInvalidArgument, AbortReason::kBadRoute,
        "rank 2 token 4 k 1: expert id " + std::to_string(value) + ", expected -1 (masked) to 7");
    const ErrorRecord record = *group_->path(1).last_error();
    EXPECT_EQ(record.awaited_rank, 2);
    EXPECT_EQ(record.token, 4);
    EXPECT_EQ(record.k, 1);
    EXPECT_EQ(record.expected, kGeometry.experts);
    EXPECT_EQ(record.seen, value);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      for (BFloat16 element : group_->ReadRows(rank)) ASSERT_EQ(element.bits, 0xA5A5);
    }
    inputs_ = good;
    ExpectNextWorks();
  }
}

// A token past the count is not read, so its routes may be anything.
TEST_P(DisagreementContractTest, RoutesPastTheTokenCountAreNotLookedAt) {
  inputs_[2].token_count = 4;
  inputs_[2].topk_experts[4 * kGeometry.topk + 1] = 1000;
  Dispatch();
}

TEST_P(DisagreementContractTest, RanksDisagreeOnTheOperation) {
  const std::vector<DispatchResult> made = Dispatch();
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    return rank == 2 ? group_->path(rank).Barrier(sequence)
                     : Combine(rank, sequence, made[rank].plan);
  });
  ExpectAll(statuses, absl::StatusCode::kInvalidArgument, AbortReason::kDisagreement,
            "rank 2 says operation barrier, rank 0 says combine");
  EXPECT_THAT(std::string(statuses[0].message()),
              HasSubstr("the rows in the shard are undefined now"));
  EXPECT_EQ(group_->path(3).last_error()->awaited_rank, 2);
  ExpectNextWorks();
}

TEST_P(DisagreementContractTest, RanksDisagreeOnTheLayer) {
  const std::vector<DispatchResult> made = Dispatch();
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    const int32_t layer = rank == 0 ? 5 : 4;
    const uint64_t version = rank == 0 ? 2 : 3;
    return group_->path(rank).PrefetchWeights(sequence, made[rank].plan,
                                              store_->WeightsOf(rank, layer, version));
  });
  // Most ranks say 4, so it is rank 0 that differs.
  ExpectAll(statuses, absl::StatusCode::kInvalidArgument, AbortReason::kDisagreement,
            "rank 0 says layer 5, rank 1 says 4; rank 0 says weights version 2, rank 1 says 3");
  ExpectNextWorks();
}

TEST_P(DisagreementContractTest, RanksDisagreeOnThePlan) {
  const std::vector<DispatchResult> first = Dispatch();
  const std::vector<DispatchResult> second = Dispatch();
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    const DeviceArray<BFloat16> hidden(backend(rank), inputs_[rank].hidden);
    const DispatchInput in = {hidden.data(), nullptr, nullptr, kGeometry.tokens};
    const PlanPtr& plan = rank == 3 ? first[rank].plan : second[rank].plan;
    return group_->path(rank).DispatchWithPlan(sequence, plan, in, {});
  });
  ExpectAll(statuses, absl::StatusCode::kInvalidArgument, AbortReason::kDisagreement,
            "rank 3 says plan of sequence 1, rank 0 says 2");
  ExpectNextWorks();
}

TEST_P(DisagreementContractTest, RanksDisagreeOnTheWeights) {
  const std::vector<DispatchResult> made = Dispatch();
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    return Combine(rank, sequence, made[rank].plan, /*weights=*/rank != 1);
  });
  ExpectAll(statuses, absl::StatusCode::kInvalidArgument, AbortReason::kDisagreement,
            "rank 1 does not gather route weights, rank 0 does");
  ExpectNextWorks();
}

// Two data paths over the same shards that were made for other geometries: found at the entry,
// before anything is stored by either geometry.
TEST_P(DisagreementContractTest, RanksDisagreeOnTheGeometry) {
  Geometry smaller = kGeometry;
  smaller.tokens = 5;
  smaller.slots = 1;
  Geometry larger = kGeometry;
  larger.experts = 4000;
  for (const Geometry& other : {smaller, larger}) {
    // Each shard is as long as its owner's geometry makes it.
    std::vector<std::unique_ptr<Memory>> shards;
    std::vector<std::unique_ptr<Memory>> mappings;
    std::vector<std::unique_ptr<DataPath>> paths;
    DataPathOptions options[2];
    for (int32_t rank = 0; rank < 2; ++rank) {
      options[rank].geometry = rank == 1 ? other : kGeometry;
      options[rank].geometry.ranks = 2;
      auto shard = backend(rank).AllocateShared(
          ShardLayout::Create(options[rank].geometry, 16).size_bytes, PeerAccess::kReadWrite);
      ASSERT_TRUE(shard.ok()) << shard.status();
      shards.push_back(*std::move(shard));
    }
    for (int32_t rank = 0; rank < 2; ++rank) {
      options[rank].hidden = 16;
      options[rank].rank = RankId(rank);
      options[rank].buffer = BufferId(1);
      options[rank].generation = Generation(1);
      options[rank].shards = {shards[0]->data(), shards[1]->data()};
      if (GetParam().own_mappings) {
        mappings.push_back(MapFor(backend(rank), *shards[1 - rank], PeerAccess::kReadWrite));
        options[rank].shards[1 - rank] = mappings.back()->data();
      }
      auto path = backend(rank).CreateDataPath(options[rank]);
      ASSERT_TRUE(path.ok()) << path.status();
      paths.push_back(*std::move(path));
    }
    std::vector<absl::Status> statuses(2);
    const auto dispatch = [&](int32_t rank) {
      const DeviceArray<BFloat16> hidden(backend(rank), inputs_[rank].hidden);
      const DeviceArray<int32_t> topk_experts(backend(rank), inputs_[rank].topk_experts);
      statuses[rank] =
          paths[rank]
              ->Dispatch(Sequence(1), {hidden.data(), topk_experts.data(), nullptr, 5}, {})
              .status();
    };
    std::thread peer([&] { dispatch(1); });
    dispatch(0);
    peer.join();
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(
          std::string(status.message()),
          HasSubstr(other == larger ? "rank 1 says experts 4000, rank 0 says 8"
                                    : "rank 1 says tokens 5, rank 0 says 6; rank 1 says slots 1"));
    }
  }
}

TEST_P(DisagreementContractTest, ARankThatDeclinesTellsTheOthers) {
  const std::vector<DispatchResult> made = Dispatch();
  for (const bool dispatch : {true, false}) {
    const Sequence sequence = group_->NextSequence();
    const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
      if (rank == 1) return group_->path(rank).Decline(sequence);
      if (!dispatch) return Combine(rank, sequence, made[rank].plan);
      const DeviceArray<BFloat16> hidden(backend(rank), inputs_[rank].hidden);
      const DeviceArray<int32_t> topk_experts(backend(rank), inputs_[rank].topk_experts);
      return group_->path(rank)
          .Dispatch(sequence, {hidden.data(), topk_experts.data(), nullptr, kGeometry.tokens}, {})
          .status();
    });
    EXPECT_TRUE(statuses[1].ok()) << statuses[1];
    EXPECT_FALSE(group_->path(1).last_error().has_value());
    for (int32_t rank : {0, 2, 3}) {
      ExpectOne(rank, statuses[rank], absl::StatusCode::kFailedPrecondition, AbortReason::kDeclined,
                "rank 1 declined");
      EXPECT_EQ(group_->path(rank).last_error()->awaited_rank, 1);
      EXPECT_EQ(group_->path(rank).last_error()->sequence, sequence.value);
    }
  }
  ExpectNextWorks();
}

TEST_P(DisagreementContractTest, SeveralOrAllRanksMayDecline) {
  Sequence sequence = group_->NextSequence();
  std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    return rank >= 2 ? group_->path(rank).Decline(sequence) : group_->path(rank).Barrier(sequence);
  });
  ExpectOne(0, statuses[0], absl::StatusCode::kFailedPrecondition, AbortReason::kDeclined,
            "ranks 2, 3 declined");
  sequence = group_->NextSequence();
  ExpectOk(group_->OnAll([&](int32_t rank) { return group_->path(rank).Decline(sequence); }));
  ExpectNextWorks();
}

TEST_P(DisagreementContractTest, ACancelLeavesAllRanksAtTheSameSequence) {
  const std::vector<DispatchResult> made = Dispatch();
  group_->path(3).RequestCancel(true);
  ExpectAll(Barrier(), absl::StatusCode::kCancelled, AbortReason::kCancelled,
            "rank 3 asked to cancel");
  const Sequence sequence = group_->NextSequence();
  ExpectAll(group_->OnAll([&](int32_t rank) { return Combine(rank, sequence, made[rank].plan); }),
            absl::StatusCode::kCancelled, AbortReason::kCancelled,
            "rank 3 asked to cancel; the rows in the shard are undefined now");
  group_->path(3).RequestCancel(false);
  ExpectNextWorks();
}

INSTANTIATE_TEST_SUITE_P(Backends, DisagreementContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
