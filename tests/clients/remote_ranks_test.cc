// What is the remote ranks' own, beside what every client keeps to.
#include "client/lib/remote_ranks.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/clients/client_cluster.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kRanks = ClientCluster::kRanks;
constexpr absl::Duration kLong = absl::Seconds(60);
constexpr LocalPlanId kPlan(1);

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class RemoteRanksTest : public ::testing::Test {
 protected:
  RemoteRanksTest() : random_(TestSeed()), layer_(kRanks, random_()), cluster_(layer_) {}

  void Open(absl::Duration rank_timeout = kLong) {
    auto opened = OpenRemoteRanks(cluster_.client(), cluster_.buffer(),
                                  RemoteRanksOptions{.rank_timeout = rank_timeout});
    ASSERT_TRUE(opened.ok()) << opened.status();
    clients_ = *std::move(opened);
  }
  void ExpectLayer() {
    OnEveryRank([&](int32_t rank) { RunLayer(layer_, *clients_[rank], kPlan); });
  }

  std::mt19937_64 random_;
  SmallLayer layer_;
  ClientCluster cluster_;
  std::vector<std::unique_ptr<RankClient>> clients_;
};

TEST_F(RemoteRanksTest, OnlyABufferThatIsThereIsOpened) {
  Client& client = cluster_.client();
  EXPECT_EQ(OpenRemoteRanks(client, cluster_.buffer() + "x").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(OpenRemoteRanks(client, "b").status().code(), absl::StatusCode::kInvalidArgument);
  Open();
  EXPECT_TRUE(clients_[0]->memory().rows.empty());
  EXPECT_TRUE(clients_[0]->memory().row_weights.empty());
}

TEST_F(RemoteRanksTest, ARankThatSubmitsNothingIsNamedAndTheGenerationLives) {
  Open(absl::Milliseconds(20));
  const auto command = clients_[2]->Submit(LocalBarrier{});
  ASSERT_TRUE(command.ok()) << command.status();
  const absl::Status ended = clients_[2]->Wait(*command, kLong).status();
  EXPECT_EQ(ended.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(Message(ended), HasSubstr("rank 0 has submitted nothing"));
  for (const auto& client : clients_) {
    EXPECT_EQ(client->Submit(LocalEmpty{}).status(), ended);
    ASSERT_TRUE(client->End().has_value());
    EXPECT_EQ(client->End()->reason, "DEADLINE");
    EXPECT_EQ(client->End()->awaited_rank, 0);
  }
  const absl::Status program = cluster_.RunProgram();
  EXPECT_TRUE(program.ok()) << program;
  Open();
  ExpectLayer();
}

TEST_F(RemoteRanksTest, ExpertsOfOneRankAloneAreRefusedAndNothingElse) {
  Open();
  ExpectLayer();
  OnEveryRank([&](int32_t rank) {
    if (rank == 1) {
      const auto alone =
          clients_[rank]->Run(LocalRunExperts{kPlan, 0, ClientCluster::kVersion, false}, kLong);
      ASSERT_TRUE(alone.ok()) << alone.status();
      EXPECT_EQ(alone->reason, "INVALID_PROGRAM");
    }
    const auto together = clients_[rank]->Run(LocalBarrier{}, kLong);
    ASSERT_TRUE(together.ok()) << together.status();
    EXPECT_TRUE(together->status.ok()) << together->status;
  });
  ExpectLayer();
}

TEST_F(RemoteRanksTest, OtherProgramsRunInBetweenAndTakeSequences) {
  Open();
  ExpectLayer();
  ASSERT_TRUE(cluster_.RunProgram().ok());
  OnEveryRank([&](int32_t rank) {
    const auto done = clients_[rank]->Run(LocalBarrier{}, kLong);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(done->sequence, Sequence(5)) << "three of the layer, one of the program";
  });
}

TEST_F(RemoteRanksTest, WhileClientsAreAttachedItsOperationsAreRefusedAndThenGoOn) {
  Open();
  auto attached = cluster_.Connect(Way::kEmbedded);
  OnEveryRank([&](int32_t rank) {
    const auto refused = clients_[rank]->Run(LocalBarrier{}, kLong);
    ASSERT_TRUE(refused.ok()) << refused.status();
    EXPECT_EQ(refused->status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(refused->reason, "") << "of no rank";
    EXPECT_THAT(Message(refused->status), HasSubstr("local clients are attached"));
  });
  attached.clear();
  const absl::Status status = cluster_.AwaitProgram();
  ASSERT_TRUE(status.ok()) << status;
  ExpectLayer();
}

TEST_F(RemoteRanksTest, TheLastOneToGoEndsWhatTheyShare) {
  Open();
  ExpectLayer();
  ASSERT_TRUE(clients_[0]->Submit(LocalBarrier{}).ok());
  clients_[1].reset();
  clients_[0].reset();
  clients_[2].reset();
  const absl::Status program = cluster_.RunProgram();
  EXPECT_TRUE(program.ok()) << program;
}

}  // namespace
}  // namespace perigee
