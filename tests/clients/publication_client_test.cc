// Direct publication by rank clients, on every way to a rank: the rows and the plan of a dispatch,
// and every refused use with its reason.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/support/publication_token.h"
#include "tests/clients/rank_client_fixture.h"
#include "tests/clients/rank_token_signer.h"

namespace perigee {
namespace {

using ::testing::EndsWith;

// Of a token, in bytes.
constexpr size_t kGenerationAt = 32;
constexpr size_t kSignatureAt = 64;

PublicationToken Decoded(const PublicationTokenBytes& bytes) {
  return DecodePublicationToken(absl::string_view(bytes.data(), bytes.size())).value();
}
PublicationTokenBytes Sign(TokenSigner& signer, const PublicationToken& token) {
  const std::string bytes = signer.Sign(token);
  PublicationTokenBytes copied;
  EXPECT_EQ(bytes.size(), copied.size());
  bytes.copy(copied.data(), copied.size());
  return copied;
}

class PublicationClientTest : public RankClientTest {
 protected:
  void ExpectOk(int32_t rank, const LocalOperation& operation) {
    const LocalCompletion done = Run(rank, operation);
    EXPECT_TRUE(done.status.ok()) << CommandName(KindOf(operation)) << ", rank " << rank << ": "
                                  << done.status;
    EXPECT_EQ(done.reason, "");
  }
  // What lies in the shard is nobody's row before a target is planned.
  void PrepareDispatch(int32_t rank) {
    const int32_t tokens = WriteTokensOf(rank);
    const RankMemory memory = clients_[rank]->memory();
    Put(memory, memory.rows.data(), std::vector<BFloat16>(memory.rows.size(), ToBFloat16(7e5f)));
    Put(memory, memory.row_weights.data(), std::vector<float>(memory.row_weights.size(), -3.0f));
    ExpectOk(rank, LocalPrepareDispatch{kPlan, tokens});
  }
  void Publish(int32_t rank, const absl::optional<PublicationTokenBytes>& token,
               bool prepared_first) {
    PrepareDispatch(rank);
    if (prepared_first) ExpectOk(rank, LocalPreparePublication{kPlan, true, token});
    ExpectOk(rank, LocalStoreRows{kPlan});
    if (!prepared_first) ExpectOk(rank, LocalPreparePublication{kPlan, true, token});
    ExpectOk(rank, LocalPublish{kPlan});
  }
  // All ranks come to know that one of them does not publish.
  void ExpectNotPublished(int32_t rank, int32_t refused, const std::string& own_reason) {
    const LocalCompletion done = Run(rank, LocalPublish{kPlan});
    EXPECT_EQ(done.reason, rank == refused ? own_reason : "DECLINED") << "rank " << rank;
    if (rank != refused) {
      EXPECT_EQ(done.awaited_rank, refused);
    }
  }
  int32_t AnyRank() { return static_cast<int32_t>(random_() % kRanks); }
};

TEST_P(PublicationClientTest, ALayerIsPublishedAsItIsDispatched) {
  for (int round = 0; round < 4; ++round) {
    if (round > 0) {
      layer_ = SmallLayer(kRanks, random_());
      cluster_->LoadWeights(layer_);
    }
    // Some ranks bring a token, the others draw theirs.
    std::vector<absl::optional<PublicationTokenBytes>> tokens(kRanks);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      if (random_() % 2 == 0) tokens[rank] = cluster_->Token(rank);
    }
    OnEveryRank([&](int32_t rank) {
      Publish(rank, tokens[rank], /*prepared_first=*/round % 2 == 0);
      FinishLayer(layer_, *clients_[rank], kPlan);
      // The plan is good for more.
      ExpectOk(rank, LocalDispatchWithPlan{kPlan, WriteTokensOf(rank), true});
      FinishLayer(layer_, *clients_[rank], kPlan);
    });
  }
  ExpectAllGoesOn();
}

// The shard is the client's to write between the two: a producer of its own needs nobody's copy.
TEST_P(PublicationClientTest, AProducerFindsTheRowsOfItsOwnRankByTheTargetsPlan) {
  if (GetParam().way == Way::kRemote) {
    EXPECT_TRUE(clients_[0]->memory().rows.empty());
    return;
  }
  int written = 0;
  std::vector<int> counts(kRanks);
  OnEveryRank([&](int32_t rank) {
    PrepareDispatch(rank);
    const RankMemory memory = clients_[rank]->memory();
    const int32_t hidden = clients_[rank]->hidden_size();
    const int32_t rows = layer_.geometry().logical_rows();
    const std::string bytes = layer_.Inputs(rank)[0].bytes;
    const size_t row_bytes = hidden * sizeof(BFloat16);
    const auto tokens = static_cast<int32_t>(bytes.size() / row_bytes);
    ExpectOk(rank, LocalStoreRows{kPlan});
    const std::vector<int32_t> dst = Get(memory, memory.plan.dst, tokens * layer_.geometry().topk);
    for (size_t route = 0; route < dst.size(); ++route) {
      if (dst[route] < 0 || dst[route] / rows != rank) continue;
      BFloat16* const place = &memory.rows[static_cast<size_t>(dst[route] % rows) * hidden];
      const std::string row = bytes.substr(route / layer_.geometry().topk * row_bytes, row_bytes);
      EXPECT_EQ(BytesOf(memory, absl::MakeSpan(place, hidden)), row) << "stored there";
      // What is published is what lies there last.
      CopyIn(memory, place, std::string(row_bytes, 0x11).data(), row_bytes);
      CopyIn(memory, place, row.data(), row_bytes);
      ++counts[rank];
    }
    ExpectOk(rank, LocalPreparePublication{kPlan, true, {}});
    ExpectOk(rank, LocalPublish{kPlan});
    FinishLayer(layer_, *clients_[rank], kPlan);
  });
  for (const int count : counts) written += count;
  EXPECT_GT(written, 0) << "no rank keeps a row";
}

class RefusedTokenTest : public PublicationClientTest {
 protected:
  void BeforeConnect() override { other_ = cluster_->AddBuffer("other", layer_); }

  std::string other_;  // a buffer of the same ranks
};

TEST_P(RefusedTokenTest, EveryReasonIsToldToTheTokensRankAndNothingIsPublished) {
  const int32_t refused = AnyRank();
  std::vector<std::pair<std::string, PublicationTokenBytes>> cases;
  cases.emplace_back("WRONG_RANK", cluster_->Token((refused + 1) % kRanks));
  cases.emplace_back("WRONG_BUFFER", cluster_->Token(other_, refused));
  PublicationTokenBytes token = cluster_->Token(refused);
  token[kSignatureAt + random_() % 32] ^= 1;
  cases.emplace_back("FORGED", token);
  token = cluster_->Token(refused);
  token[kGenerationAt] ^= 1;
  cases.emplace_back("STALE_GENERATION", token);
  // What no coordinator would sign, under the rank's own key.
  TokenSigner signer = RankTokenSigner(*cluster_, refused);
  token = cluster_->Token(refused);
  ASSERT_EQ(Sign(signer, Decoded(token)), token) << "it is the rank's key";
  PublicationToken changed = Decoded(token);
  changed.serial = ~uint64_t{0} - random_() % 1000;  // in nobody's grant
  cases.emplace_back("UNKNOWN", Sign(signer, changed));
  changed = Decoded(token);
  changed.expiry = absl::ZeroDuration();
  cases.emplace_back("EXPIRED", Sign(signer, changed));
  token = cluster_->Token(refused);
  OnEveryRank([&](int32_t rank) {
    Publish(rank, rank == refused ? absl::make_optional(token) : absl::nullopt, true);
  });
  cases.emplace_back("SPENT", token);
  for (const auto& [reason, bytes] : cases) {
    SCOPED_TRACE(reason);
    OnEveryRank([&, reason = reason, bytes = bytes](int32_t rank) {
      PrepareDispatch(rank);
      ExpectOk(rank, LocalStoreRows{kPlan});
      if (rank == refused) {
        const LocalCompletion done = Run(rank, LocalPreparePublication{kPlan, true, bytes});
        EXPECT_EQ(done.reason, reason);
        EXPECT_EQ(done.status.code(), absl::StatusCode::kPermissionDenied);
        EXPECT_THAT(std::string(done.status.message()), EndsWith(reason));
      } else {
        ExpectOk(rank, LocalPreparePublication{kPlan, true, {}});
      }
      ExpectNotPublished(rank, refused, "STALE_OBJECT");
    });
    ExpectAllGoesOn();
  }
}

TEST_P(PublicationClientTest, APreparedPublicationHasTheShardForItself) {
  OnEveryRank([&](int32_t rank) {
    PrepareDispatch(rank);
    ExpectOk(rank, LocalStoreRows{kPlan});
    ExpectOk(rank, LocalPreparePublication{kPlan, true, {}});
    const int32_t tokens = WriteTokensOf(rank);
    for (const LocalOperation& writer :
         {LocalOperation(LocalDispatch{LocalPlanId(2), tokens, true}),
          LocalOperation(LocalPrepareDispatch{LocalPlanId(2), tokens}),
          LocalOperation(LocalPreparePublication{kPlan, true, {}})}) {
      const LocalCompletion done = Run(rank, writer);
      EXPECT_EQ(done.reason, "PUBLICATION_PENDING") << CommandName(KindOf(writer));
      EXPECT_EQ(done.status.code(), absl::StatusCode::kFailedPrecondition);
    }
    EXPECT_EQ(Run(rank, LocalCombine{kPlan, false}).reason, "STALE_OBJECT");
    // They were refused: it is as it was.
    ExpectOk(rank, LocalPublish{kPlan});
    FinishLayer(layer_, *clients_[rank], kPlan);
  });
}

TEST_P(PublicationClientTest, EveryStepNeedsThoseBeforeItAndTheTarget) {
  const auto expect_stale = [&](int32_t rank, const LocalOperation& step) {
    const LocalCompletion done = Run(rank, step);
    EXPECT_EQ(done.reason, "STALE_OBJECT") << CommandName(KindOf(step)) << ": " << done.status;
  };
  OnEveryRank([&](int32_t rank) {
    expect_stale(rank, LocalPublish{kPlan});
    expect_stale(rank, LocalStoreRows{kPlan});
    expect_stale(rank, LocalPreparePublication{kPlan, true, {}});
    PrepareDispatch(rank);
    expect_stale(rank, LocalStoreRows{LocalPlanId(7)});
    expect_stale(rank, LocalPublish{LocalPlanId(7)});
    expect_stale(rank, LocalPublish{kPlan});
    ExpectOk(rank, LocalDispatch{LocalPlanId(2), WriteTokensOf(rank), true});
    expect_stale(rank, LocalStoreRows{kPlan});
    Publish(rank, absl::nullopt, true);
    expect_stale(rank, LocalPublish{kPlan});  // once only
    FinishLayer(layer_, *clients_[rank], kPlan);
  });
}

TEST_P(PublicationClientTest, ABadRouteIsToldToEveryRankAndThereIsNoTarget) {
  const int32_t bad = static_cast<int32_t>(random_() % (kRanks - 1));  // the last has no tokens
  OnEveryRank([&](int32_t rank) {
    const int32_t tokens = WriteTokensOf(rank);
    const RankMemory memory = clients_[rank]->memory();
    if (rank == bad) Put(memory, &memory.topk_experts[0], std::vector<int32_t>{4444});
    EXPECT_EQ(Run(rank, LocalPrepareDispatch{kPlan, tokens}).reason, "BAD_ROUTE");
    EXPECT_EQ(Run(rank, LocalStoreRows{kPlan}).reason, "STALE_OBJECT");
  });
  ExpectAllGoesOn();
}

TEST_P(PublicationClientTest, WhoLeavesWithAPreparedPublicationHoldsNothingUp) {
  OnEveryRank([&](int32_t rank) {
    PrepareDispatch(rank);
    ExpectOk(rank, LocalPreparePublication{kPlan, true, {}});
  });
  for (const auto& client : clients_) EXPECT_TRUE(client->Detach().ok());
  const absl::Status program = cluster_->AwaitProgram();
  EXPECT_TRUE(program.ok()) << program;
  clients_.clear();
  if (GetParam().way != Way::kRemote) clients_ = cluster_->Connect(GetParam().way);
  if (!clients_.empty()) ExpectAllGoesOn();
}

INSTANTIATE_TEST_SUITE_P(EveryWay, PublicationClientTest, ::testing::ValuesIn(EveryWay()),
                         NameOfWay);
INSTANTIATE_TEST_SUITE_P(EveryWay, RefusedTokenTest, ::testing::ValuesIn(EveryWay()), NameOfWay);

}  // namespace
}  // namespace perigee
