// How operations end early on every backend: who is told what, what is left as it was, and whether
// the next operation works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "absl/types/optional.h"
#include "kernels/layout/shard_layout.h"
#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int32_t kRanks = 4;
constexpr Geometry kGeometry = {
    .ranks = kRanks, .experts = 8, .tokens = 6, .topk = 3, .slots = 2, .token_padding = 4};

class ErrorsContractTest : public ContractTest {
 protected:
  ErrorsContractTest() : random_(TestSeed()) { Start(absl::Seconds(120)); }

  void Start(absl::Duration timeout) {
    RankGroupOptions options;
    options.geometry = kGeometry;
    options.own_mappings = GetParam().own_mappings;
    options.operation_timeout = timeout;
    group_ = std::make_unique<RankGroup>(backend(), options);
    store_ = std::make_unique<ExpertStore>(backend(), kGeometry, WeightsShape{options.hidden, 8},
                                           options.own_mappings);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      store_->SetHeader(rank, 0, 1);
    }
    input_ = PlainGroup(random_, kGeometry);
    inputs_ = NamedInputs(input_, options.hidden, 1);
  }

  std::vector<DispatchResult> Dispatch() {
    std::vector<DispatchResult> results = group_->Dispatch(inputs_, Copy::kInPlace);
    for (const DispatchResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status;
    return results;
  }
  std::vector<absl::Status> Barrier() {
    const Sequence sequence = group_->NextSequence();
    return group_->OnAll([&](int32_t rank) { return group_->path(rank).Barrier(sequence); });
  }
  absl::Status Combine(int32_t rank, Sequence sequence, const PlanPtr& plan, bool weights = false) {
    DataPath& path = group_->path(rank);
    const DeviceArray<BFloat16> hidden(backend(), size_t{kGeometry.tokens} * group_->hidden());
    const DeviceArray<float> route_weights(backend(), kGeometry.routes());
    return path.Combine(sequence, plan, {path.rows(), weights ? path.row_weights() : nullptr},
                        {hidden.data(), weights ? route_weights.data() : nullptr});
  }

  // Every rank must have ended with this code, reason and text, at this sequence.
  void ExpectAll(const std::vector<absl::Status>& statuses, absl::StatusCode code,
                 AbortReason reason, const std::string& text) {
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      ExpectOne(rank, statuses[rank], code, reason, text);
    }
  }
  void ExpectOne(int32_t rank, const absl::Status& status, absl::StatusCode code,
                 AbortReason reason, const std::string& text) {
    SCOPED_TRACE(testing::Message() << "rank " << rank);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    const absl::optional<ErrorRecord> record = group_->path(rank).last_error();
    ASSERT_TRUE(record.has_value());
    EXPECT_EQ(record->reason, static_cast<uint32_t>(reason));
    EXPECT_EQ(record->rank, rank);
    EXPECT_EQ(record->generation, 7u);
  }
  // All ranks have left at the same sequence: whatever comes next works.
  void ExpectNextWorks() {
    ExpectOk(Barrier());
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_FALSE(group_->path(rank).last_error().has_value());
    }
    const std::vector<DispatchResult> made = Dispatch();
    const Sequence sequence = group_->NextSequence();
    ExpectOk(group_->OnAll([&](int32_t rank) { return Combine(rank, sequence, made[rank].plan); }));
  }

  std::mt19937_64 random_;
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<ExpertStore> store_;
  GroupInput input_;
  std::vector<RankInput> inputs_;
};

TEST_P(ErrorsContractTest, ABadRouteEndsTheDispatchOnEveryRank) {
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
TEST_P(ErrorsContractTest, RoutesPastTheTokenCountAreNotLookedAt) {
  inputs_[2].token_count = 4;
  inputs_[2].topk_experts[4 * kGeometry.topk + 1] = 1000;
  Dispatch();
}

TEST_P(ErrorsContractTest, RanksDisagreeOnTheOperation) {
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

TEST_P(ErrorsContractTest, RanksDisagreeOnTheLayer) {
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

TEST_P(ErrorsContractTest, RanksDisagreeOnThePlan) {
  const std::vector<DispatchResult> first = Dispatch();
  const std::vector<DispatchResult> second = Dispatch();
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    const DeviceArray<BFloat16> hidden(backend(), inputs_[rank].hidden);
    const DispatchInput in = {hidden.data(), nullptr, nullptr, kGeometry.tokens};
    const PlanPtr& plan = rank == 3 ? first[rank].plan : second[rank].plan;
    return group_->path(rank).DispatchWithPlan(sequence, plan, in, {});
  });
  ExpectAll(statuses, absl::StatusCode::kInvalidArgument, AbortReason::kDisagreement,
            "rank 3 says plan of sequence 1, rank 0 says 2");
  ExpectNextWorks();
}

TEST_P(ErrorsContractTest, RanksDisagreeOnTheWeights) {
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
TEST_P(ErrorsContractTest, RanksDisagreeOnTheGeometry) {
  Geometry smaller = kGeometry;
  smaller.tokens = 5;
  smaller.slots = 1;
  Geometry larger = kGeometry;
  larger.experts = 4000;
  for (const Geometry& other : {smaller, larger}) {
    // Each shard is as long as its owner's geometry makes it.
    std::vector<std::unique_ptr<Memory>> shards;
    std::vector<std::unique_ptr<DataPath>> paths;
    DataPathOptions options[2];
    for (int32_t rank = 0; rank < 2; ++rank) {
      options[rank].geometry = rank == 1 ? other : kGeometry;
      options[rank].geometry.ranks = 2;
      auto shard = backend().AllocateShared(
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
      auto path = backend().CreateDataPath(options[rank]);
      ASSERT_TRUE(path.ok()) << path.status();
      paths.push_back(*std::move(path));
    }
    std::vector<absl::Status> statuses(2);
    const auto dispatch = [&](int32_t rank) {
      const DeviceArray<BFloat16> hidden(backend(), inputs_[rank].hidden);
      const DeviceArray<int32_t> topk_experts(backend(), inputs_[rank].topk_experts);
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

TEST_P(ErrorsContractTest, ARankThatDeclinesTellsTheOthers) {
  const std::vector<DispatchResult> made = Dispatch();
  for (const bool dispatch : {true, false}) {
    const Sequence sequence = group_->NextSequence();
    const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
      if (rank == 1) return group_->path(rank).Decline(sequence);
      if (!dispatch) return Combine(rank, sequence, made[rank].plan);
      const DeviceArray<BFloat16> hidden(backend(), inputs_[rank].hidden);
      const DeviceArray<int32_t> topk_experts(backend(), inputs_[rank].topk_experts);
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

TEST_P(ErrorsContractTest, SeveralOrAllRanksMayDecline) {
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

TEST_P(ErrorsContractTest, ACancelLeavesAllRanksAtTheSameSequence) {
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

TEST_P(ErrorsContractTest, AMissingRankIsNamedAtTheDeadline) {
  Start(absl::Milliseconds(50));
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    return rank == 2 ? absl::OkStatus() : group_->path(rank).Barrier(sequence);
  });
  for (int32_t rank : {0, 1, 3}) {
    ExpectOne(rank, statuses[rank], absl::StatusCode::kDeadlineExceeded, AbortReason::kDeadline,
              "rank 2 did not arrive within 50ms; it is before its first operation");
    EXPECT_EQ(group_->path(rank).last_error()->awaited_rank, 2);
    EXPECT_EQ(group_->path(rank).last_error()->phase, static_cast<uint32_t>(Phase::kEntry));
    EXPECT_EQ(group_->path(rank).last_error()->expected, 5);
    EXPECT_EQ(group_->path(rank).last_error()->seen, 0);
  }
  // The ranks are no more at one place: nothing can follow.
  const absl::Status next = group_->path(0).Barrier(sequence.Next());
  ExpectOne(0, next, absl::StatusCode::kUnavailable, AbortReason::kAborted,
            "no operation can follow in this generation after: rank 0, barrier, sequence 1: "
            "rank 2 did not arrive");
}

TEST_P(ErrorsContractTest, AnAbortEndsTheWaitOfEveryRank) {
  const std::vector<DispatchResult> made = Dispatch();
  const Sequence sequence = group_->NextSequence();
  // Rank 2 is gone; its abort comes in its place, while the others wait or before they do.
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    if (rank != 2) return Combine(rank, sequence, made[rank].plan);
    for (int32_t survivor : {0, 1, 3}) {
      group_->path(survivor).Abort(2, "its process has ended");
      group_->path(survivor).Abort(-1, "a later reason");
    }
    return absl::OkStatus();
  });
  for (int32_t rank : {0, 1, 3}) {
    ExpectOne(rank, statuses[rank], absl::StatusCode::kUnavailable, AbortReason::kAborted,
              "rank 2 is lost: its process has ended");
    EXPECT_EQ(group_->path(rank).last_error()->awaited_rank, 2);
    ExpectOne(rank, group_->path(rank).Barrier(sequence.Next()), absl::StatusCode::kUnavailable,
              AbortReason::kAborted, "rank 2 is lost: its process has ended");
    const DeviceArray<BFloat16> output(backend(), made[rank].rows.size());
    ExpectOne(rank,
              group_->path(rank).RunExperts(made[rank].plan, store_->WeightsOf(rank, 0, 1),
                                            {group_->path(rank).rows(), nullptr, output.data()}),
              absl::StatusCode::kUnavailable, AbortReason::kAborted,
              "rank 2 is lost: its process has ended");
  }
}

TEST_P(ErrorsContractTest, ASkippedSequenceIsOutOfStepForAll) {
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    return group_->path(rank).Barrier(rank == 1 ? Sequence(sequence.value + 1) : sequence);
  });
  ExpectOne(1, statuses[1], absl::StatusCode::kFailedPrecondition, AbortReason::kOutOfStep,
            "rank 1 was called with sequence 2, expected 1");
  for (int32_t rank : {0, 2, 3}) {
    ExpectOne(rank, statuses[rank], absl::StatusCode::kFailedPrecondition, AbortReason::kOutOfStep,
              "rank 1");
    EXPECT_EQ(group_->path(rank).last_error()->awaited_rank, 1);
  }
}

TEST_P(ErrorsContractTest, AnOldSequenceIsRefused) {
  ExpectOk(Barrier());
  for (uint64_t old : {0, 1}) {
    const absl::Status status = group_->path(0).Barrier(Sequence(old));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not after 1"));
    EXPECT_FALSE(group_->path(0).last_error().has_value());
  }
  ExpectNextWorks();
}

TEST_P(ErrorsContractTest, BadDispatchInputIsRefused) {
  DataPath& path = group_->path(0);
  const DeviceArray<BFloat16> hidden(backend(), inputs_[0].hidden);
  const DeviceArray<int32_t> topk_experts(backend(), inputs_[0].topk_experts);
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

TEST_P(ErrorsContractTest, ASavedPlanFixesTheTokenCount) {
  const std::vector<DispatchResult> made = Dispatch();
  const DeviceArray<BFloat16> hidden(backend(), inputs_[0].hidden);
  const absl::Status status = group_->path(0).DispatchWithPlan(
      group_->NextSequence(), made[0].plan, {hidden.data(), nullptr, nullptr, 5}, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("token count of rank 0 is 5, its plan has 6"));
}

TEST_P(ErrorsContractTest, BadOptionsAreRefused) {
  const auto create = [&](const std::function<void(DataPathOptions&)>& spoil) {
    DataPathOptions options;
    options.geometry = {.ranks = 1, .experts = 4, .tokens = 2, .topk = 1};
    options.hidden = 16;
    options.buffer = BufferId(1);
    options.generation = Generation(1);
    auto shard = backend().AllocateShared(ShardLayout::Create(options.geometry, 16).size_bytes,
                                          PeerAccess::kReadWrite);
    EXPECT_TRUE(shard.ok());
    options.shards = {(*shard)->data()};
    spoil(options);
    const auto path = backend().CreateDataPath(options);
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

TEST_P(ErrorsContractTest, AUsedShardIsRefused) {
  ExpectOk(Barrier());
  DataPathOptions options;
  options.geometry = kGeometry;
  options.hidden = group_->hidden();
  options.buffer = BufferId(3);
  options.generation = Generation(8);
  options.shards.assign(kRanks, group_->shard(0));
  const auto path = backend().CreateDataPath(options);
  EXPECT_EQ(path.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(path.status().message()),
              HasSubstr("shard of rank 0 has been used up to sequence 1, expected zeroed memory"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ErrorsContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
