// The contract of RankClient, held against every way to a rank: remote, local, embedded. Direct
// publication: publication_client_test; an owner-sharded source: source_client_test.
#include "client/lib/rank_client.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/rank_client_fixture.h"

namespace perigee {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr absl::Duration kNoTime = absl::Milliseconds(1);

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_P(RankClientTest, ALayerIsTheReferencesOnEveryRank) {
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(clients_[rank]->rank(), RankId(rank));
    EXPECT_EQ(clients_[rank]->generation(), Generation(cluster_->group().generation()));
    EXPECT_EQ(clients_[rank]->geometry(), layer_.geometry());
  }
  for (int round = 0; round < 3; ++round) {
    if (round > 0) {
      layer_ = SmallLayer(kRanks, random_());
      cluster_->LoadWeights(layer_);  // calls come between operations
    }
    OnEveryRank([&](int32_t rank) { RunLayer(layer_, *clients_[rank], kPlan); });
  }
}

// A whole step is on its way before the first wait, from one thread for all ranks: one by one, then
// together. One of its operations is refused, alone.
TEST_P(RankClientTest, OperationsRunInTheOrderOfTheirSubmissionAndEndEachByItself) {
  for (const bool together : {false, true}) {
    std::vector<uint64_t> first(kRanks);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const uint64_t version = ClientCluster::kVersion;
      const LocalPlanId unknown(kPlan.value + 1);
      const std::vector<LocalOperation> step = {
          LocalDispatch{kPlan, WriteTokensOf(rank), true}, LocalPrefetchWeights{kPlan, 0, version},
          LocalRunExperts{unknown, 0, version, true},      LocalEmpty{},
          LocalRunExperts{kPlan, 0, version, true},        LocalCombine{kPlan, true}};
      auto submitted =
          together ? clients_[rank]->SubmitProgram(step) : clients_[rank]->Submit(step[0]);
      ASSERT_TRUE(submitted.ok()) << submitted.status();
      first[rank] = *submitted;
      for (size_t i = 1; !together && i < step.size(); ++i) {
        submitted = clients_[rank]->Submit(step[i]);
        ASSERT_TRUE(submitted.ok()) << submitted.status();
        EXPECT_EQ(*submitted, first[rank] + i);
      }
    }
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      for (uint64_t i = 0; i < 6; ++i) {
        const auto done = clients_[rank]->Wait(first[rank] + i, kLong);
        ASSERT_TRUE(done.ok()) << done.status();
        EXPECT_EQ(done->status.ok(), i != 2) << i << ": " << done->status;
        EXPECT_EQ(done->position, first[rank] + i);
      }
      const RankMemory memory = clients_[rank]->memory();
      const std::string bytes = BytesOf(memory, memory.output);
      EXPECT_LE(RelativeError(BFloat16Values(bytes), layer_.ExpectedOutput(rank)),
                kSmallLayerTolerance);
    }
    layer_ = SmallLayer(kRanks, random_());
    cluster_->LoadWeights(layer_);
  }
  for (const size_t count : {size_t{0}, size_t{kCommandSlots + 1}}) {
    EXPECT_EQ(clients_[0]->SubmitProgram(std::vector<LocalOperation>(count)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_P(RankClientTest, APlanIsCopiedReleasedAndFollowedAgain) {
  const LocalPlanId copy(9);
  std::vector<std::vector<double>> rows;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    std::vector<double>& shard = rows.emplace_back();
    for (const RowSource& source : RowSourcesOf(layer_.geometry(), layer_.plan(), rank)) {
      std::vector<double> row(clients_[0]->hidden_size());
      if (source.kind == RowSource::Kind::kRoute) {
        const std::vector<double> tokens = BFloat16Values(layer_.Inputs(source.rank)[0].bytes);
        std::copy_n(tokens.begin() + source.token * row.size(), row.size(), row.begin());
      }
      shard.insert(shard.end(), row.begin(), row.end());
    }
  }
  const auto expected =
      CombineByTheRules(layer_.geometry(), clients_[0]->hidden_size(), layer_.plan(), rows);
  OnEveryRank([&](int32_t rank) {
    const int32_t tokens = WriteTokensOf(rank);
    EXPECT_TRUE(Run(rank, LocalDispatch{kPlan, tokens, false}).status.ok());
    EXPECT_TRUE(Run(rank, LocalClonePlan{copy, kPlan}).status.ok());
    EXPECT_TRUE(Run(rank, LocalReleasePlan{kPlan}).status.ok());
    EXPECT_EQ(Run(rank, LocalReleasePlan{kPlan}).reason, "STALE_OBJECT");
    EXPECT_TRUE(Run(rank, LocalCombine{copy, false}).status.ok());
    EXPECT_EQ(Run(rank, LocalCombine{kPlan, false}).reason, "STALE_OBJECT");
    // Planning is skipped: the routes are not looked at.
    const RankMemory memory = clients_[rank]->memory();
    Put(memory, memory.topk_experts.data(),
        std::vector<int32_t>(memory.topk_experts.size(), 77777));
    EXPECT_TRUE(Run(rank, LocalDispatchWithPlan{copy, tokens, false}).status.ok());
    EXPECT_TRUE(Run(rank, LocalCombine{copy, false}).status.ok());
    const std::string bytes = BytesOf(memory, memory.output);
    EXPECT_LE(RelativeError(BFloat16Values(bytes), expected[rank]), 1e-6) << "rank " << rank;
  });
}

TEST_P(RankClientTest, ABadRouteIsToldToEveryRankWithItsPlace) {
  const int32_t bad_rank =
      static_cast<int32_t>(random_() % (kRanks - 1));  // the last has no tokens
  OnEveryRank([&](int32_t rank) {
    const int32_t tokens = WriteTokensOf(rank);
    const RankMemory memory = clients_[rank]->memory();
    if (rank == bad_rank) Put(memory, &memory.topk_experts[4], std::vector<int32_t>{4444});
    const LocalCompletion done = Run(rank, LocalDispatch{kPlan, tokens, true});
    EXPECT_EQ(done.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(done.reason, "BAD_ROUTE");
    EXPECT_EQ(done.token, 4 / layer_.geometry().topk);
    EXPECT_EQ(done.k, 4 % layer_.geometry().topk);
    EXPECT_EQ(done.seen, 4444);
    EXPECT_NE(done.sequence.value, 0u);
    EXPECT_THAT(Message(done.status), HasSubstr("4444"));
  });
  ExpectAllGoesOn();
}

TEST_P(RankClientTest, WhatOneRankIsRefusedTheOthersHearIsDeclined) {
  const int32_t refused = static_cast<int32_t>(random_() % kRanks);
  OnEveryRank([&](int32_t rank) {
    const int32_t tokens = rank == refused ? layer_.geometry().tokens + 1 : WriteTokensOf(rank);
    const LocalCompletion done = Run(rank, LocalDispatch{kPlan, tokens, true});
    EXPECT_EQ(done.reason, rank == refused ? "INVALID_PROGRAM" : "DECLINED") << done.status;
    if (rank != refused) {
      EXPECT_EQ(done.awaited_rank, refused);
    }
  });
  ExpectAllGoesOn();
  OnEveryRank([&](int32_t rank) {
    const LocalPlanId plan = rank == refused ? LocalPlanId(55) : kPlan;
    EXPECT_TRUE(Run(rank, LocalDispatch{kPlan, WriteTokensOf(rank), true}).status.ok());
    const LocalCompletion done = Run(rank, LocalCombine{plan, false});
    EXPECT_EQ(done.reason, rank == refused ? "STALE_OBJECT" : "DECLINED") << done.status;
  });
  ExpectAllGoesOn();
}

TEST_P(RankClientTest, RanksThatDisagreeAreAllToldWhoSaidWhat) {
  const int32_t other = static_cast<int32_t>(random_() % kRanks);
  OnEveryRank([&](int32_t rank) {
    const int32_t tokens = WriteTokensOf(rank);
    const LocalOperation operation = rank == other
                                         ? LocalOperation(LocalBarrier{})
                                         : LocalOperation(LocalDispatch{kPlan, tokens, true});
    const LocalCompletion done = Run(rank, operation);
    EXPECT_EQ(done.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(done.reason, "DISAGREEMENT");
    EXPECT_THAT(Message(done.status), HasSubstr(absl::StrCat("rank ", other)));
    EXPECT_THAT(Message(done.status), HasSubstr("barrier"));
    EXPECT_THAT(Message(done.status), HasSubstr("dispatch"));
  });
  ExpectAllGoesOn();
}

TEST_P(RankClientTest, AWaitIsBoundedAndKnowsWhatWasSubmitted) {
  EXPECT_EQ(clients_[0]->Wait(0, kNoTime).status().code(), absl::StatusCode::kOutOfRange);
  const auto command = clients_[0]->Submit(LocalBarrier{});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_EQ(clients_[0]->Wait(*command, kNoTime).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  OnEveryRank([&](int32_t rank) {
    if (rank > 0) {
      EXPECT_TRUE(Run(rank, LocalBarrier{}).status.ok());
      return;
    }
    const auto done = clients_[rank]->Wait(*command, kLong);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_TRUE(done->status.ok()) << done->status;
  });
  EXPECT_TRUE(clients_[0]->Wait(*command, kNoTime).ok()) << "it is kept for a while";
  for (uint32_t i = 0; i < kCommandSlots + 1; ++i) Run(0, LocalEmpty{});
  EXPECT_EQ(clients_[0]->Wait(*command, kNoTime).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_P(RankClientTest, AsManyCommandsAreUnderWayAsARingHolds) {
  for (uint32_t i = 0; i < kCommandSlots; ++i) {
    ASSERT_EQ(*clients_[0]->Submit(LocalBarrier{}), i);
  }
  EXPECT_EQ(clients_[0]->Submit(LocalBarrier{}).status().code(),
            absl::StatusCode::kResourceExhausted);
  OnEveryRank([&](int32_t rank) {
    for (uint32_t i = 0; i < kCommandSlots; ++i) {
      const auto done =
          rank == 0 ? clients_[rank]->Wait(i, kLong) : clients_[rank]->Run(LocalBarrier{}, kLong);
      ASSERT_TRUE(done.ok()) << done.status();
      ASSERT_TRUE(done->status.ok()) << done->status;
    }
  });
  EXPECT_EQ(*clients_[0]->Submit(LocalEmpty{}), kCommandSlots);
}

TEST_P(RankClientTest, ALostRankEndsAllClientsAndTheNextGenerationHasNewOnes) {
  const int32_t lost = static_cast<int32_t>(random_() % kRanks);
  ExpectAllGoesOn();
  cluster_->Lose(lost);
  OnEveryRank([&](int32_t rank) {
    // Its own client may hear of it at the first word.
    const auto done = clients_[rank]->Run(LocalBarrier{}, kLong);
    const absl::Status status = done.ok() ? done->status : done.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << "rank " << rank << ": " << status;
    // What has ended stays so.
    const absl::Time until = absl::Now() + kLong;
    absl::Status ended;
    while (ended.ok() && absl::Now() < until)
      ended = clients_[rank]->Run(LocalEmpty{}, kLong).status();
    EXPECT_EQ(clients_[rank]->Submit(LocalEmpty{}).status().code(), absl::StatusCode::kUnavailable);
    if (rank == lost) return;
    EXPECT_THAT(Message(status), HasSubstr(absl::StrCat("workers/w", lost)));
    const absl::optional<LocalCompletion> end = clients_[rank]->End();
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->reason, "GENERATION_ABORTED");
    EXPECT_THAT(end->lost, Contains(lost));
    // Its memory can be touched as before.
    WriteTokensOf(rank);
  });
  clients_.clear();
  cluster_->Replace(lost, layer_);
  clients_ = cluster_->Connect(GetParam().way);
  ExpectAllGoesOn();
}

TEST_P(RankClientTest, AfterDetachNothingIsTakenAndAnotherMayCome) {
  ExpectAllGoesOn();
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_TRUE(clients_[rank]->Detach().ok());
    EXPECT_TRUE(clients_[rank]->Detach().ok()) << "once more";
    EXPECT_EQ(clients_[rank]->Submit(LocalEmpty{}).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(clients_[rank]->Wait(0, kNoTime).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_FALSE(clients_[rank]->End().has_value());
    WriteTokensOf(rank);  // memory of this process alone
  }
  const absl::Status program = cluster_->AwaitProgram();
  EXPECT_TRUE(program.ok()) << program;
  clients_ = cluster_->Connect(GetParam().way);
  ExpectAllGoesOn();
}

// Slots of every rank have gradients of their own; who has the expert at home gets their sum.
TEST_P(RankClientTest, GradientsOfSlotsComeHomeInOneOrder) {
  if (GetParam().way == Way::kRemote) {
    EXPECT_EQ(clients_[0]->memory().gradients.slots(&GradientsLayout::gate), nullptr);
    return;
  }
  const Geometry& geometry = layer_.geometry();
  const int32_t own = geometry.experts_per_rank();
  const size_t elements = layer_.shape().hidden() * layer_.shape().intermediate();
  size_t GradientsLayout::*const matrices[] = {&GradientsLayout::gate, &GradientsLayout::up,
                                               &GradientsLayout::down};
  const auto random = [&](size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = std::normal_distribution<float>()(random_);
    return values;
  };
  for (const auto matrix : matrices) {
    std::vector<std::vector<float>> slots, sums;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const RankMemory memory = clients_[rank]->memory();
      slots.push_back(random(geometry.slots * elements));
      sums.push_back(random(own * elements));
      Put(memory, memory.gradients.slots(matrix), slots.back());
      Put(memory, memory.gradients.home(0, matrix), sums.back());
    }
    OnEveryRank([&](int32_t rank) {
      EXPECT_TRUE(Run(rank, LocalDispatch{kPlan, WriteTokensOf(rank), false}).status.ok());
      EXPECT_TRUE(Run(rank, LocalReduceGradients{kPlan, 0}).status.ok());
    });
    int replicas = 0;
    for (int32_t from = 0; from < kRanks; ++from) {
      for (int32_t slot = 0; slot < geometry.slots; ++slot) {
        const int32_t expert = layer_.plan().experts_to_copy[from][slot];
        if (expert < 0) continue;
        ++replicas;
        float* const sum = &sums[expert / own][(expert % own) * elements];
        float* const added = &slots[from][slot * elements];
        for (size_t i = 0; i < elements; ++i) sum[i] += added[i];
        std::fill_n(added, elements, 0.0f);
      }
    }
    EXPECT_GT(replicas, 0) << "nothing was brought home";
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const RankMemory memory = clients_[rank]->memory();
      EXPECT_EQ(Get(memory, memory.gradients.home(0, matrix), own * elements), sums[rank]);
      EXPECT_EQ(Get(memory, memory.gradients.slots(matrix), slots[rank].size()), slots[rank]);
      // What is unused stays there, and the next matrix finds all clear.
      Put(memory, memory.gradients.slots(matrix), std::vector<float>(slots[rank].size()));
    }
  }
}

// Experts of the framework's own find the weights of those that are not its rank's.
TEST_P(RankClientTest, SlotsHoldTheWeightsThatThePlanWantsThere) {
  if (GetParam().way == Way::kRemote) {
    EXPECT_EQ(clients_[0]->memory().slots.part(0), nullptr);
    return;
  }
  std::vector<int> found(kRanks);
  OnEveryRank([&](int32_t rank) {
    EXPECT_TRUE(Run(rank, LocalDispatch{kPlan, WriteTokensOf(rank), false}).status.ok());
    EXPECT_TRUE(Run(rank, LocalPrefetchWeights{kPlan, 0, ClientCluster::kVersion}).status.ok());
    const RankMemory memory = clients_[rank]->memory();
    const int32_t own = layer_.geometry().experts_per_rank();
    for (int32_t slot = 0; slot < layer_.geometry().slots; ++slot) {
      const int32_t expert = layer_.plan().experts_to_copy[rank][slot];
      if (expert < 0) continue;
      ++found[rank];
      for (int matrix = 0; matrix < kWeightMatrices; ++matrix) {
        const size_t bytes = memory.slots.shape.part_bytes(matrix);
        const std::vector<std::byte> lies =
            Get(memory, memory.slots.part(matrix) + slot * bytes, bytes);
        const std::string wanted =
            layer_.Weights(expert / own)[matrix].bytes.substr(expert % own * bytes, bytes);
        EXPECT_EQ(std::string(reinterpret_cast<const char*>(lies.data()), bytes), wanted)
            << "rank " << rank << ", slot " << slot << ", matrix " << matrix;
      }
    }
    EXPECT_EQ(memory.slots.part(kWeightMatrices), nullptr) << "there are no scales";
  });
  EXPECT_GT(std::accumulate(found.begin(), found.end(), 0), 0) << "no slot was wanted";
}

// On a GPU nobody waits on the host; elsewhere there are no streams to be ordered with.
TEST_P(RankClientTest, StreamsAndCommandsWaitForEachOther) {
  if (clients_[0]->memory().device < 0) {
    EXPECT_EQ(clients_[0]->SubmitBehind(nullptr, LocalEmpty{}).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(clients_[0]->MakeWait(nullptr, 0).code(), absl::StatusCode::kFailedPrecondition);
    return;
  }
  // Ahead: what is made for a stream's first use may wait for the device, and so for other ranks.
  std::vector<std::unique_ptr<PooledStream>> streams;
  for (const std::unique_ptr<RankClient>& client : clients_) {
    streams.push_back(TakeStream(client->memory().device));
    ASSERT_TRUE(client->SubmitBehind((*streams.back())->get(), LocalEmpty{}).ok());
  }
  OnEveryRank([&](int32_t rank) {
    RankClient& client = *clients_[rank];
    const RankMemory memory = client.memory();
    CUstream_st* const raw = (*streams[rank])->get();
    const int32_t tokens = WriteTokensOf(rank);
    const auto dispatched = client.SubmitBehind(raw, LocalDispatch{kPlan, tokens, true});
    ASSERT_TRUE(dispatched.ok()) << dispatched.status();
    ASSERT_TRUE(client.MakeWait(raw, *dispatched).ok());
    const auto combined = client.SubmitBehind(raw, LocalCombine{kPlan, true});
    ASSERT_TRUE(combined.ok()) << combined.status();
    ASSERT_TRUE(client.MakeWait(raw, *combined).ok());
    EXPECT_TRUE((*streams[rank])->Synchronize().ok());
    const auto done = client.Wait(*combined, kNoTime);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_TRUE(done->status.ok()) << done->status;
    EXPECT_EQ(BytesOf(memory, memory.gathered_weights), layer_.ExpectedGathered(rank));
  });
}

INSTANTIATE_TEST_SUITE_P(EveryWay, RankClientTest, ::testing::ValuesIn(EveryWay()), NameOfWay);

}  // namespace
}  // namespace perigee
