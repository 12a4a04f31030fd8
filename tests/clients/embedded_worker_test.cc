// What is the embedded worker's own, beside what every client keeps to: the rules of its session,
// and lives that end in the middle.
#include "worker/embedded/embedded_worker.h"

#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/lib/local_client.h"
#include "client/lib/rank_tensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"
#include "tests/clients/client_cluster.h"
#include "tests/testing/process.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kRanks = ClientCluster::kRanks;
constexpr absl::Duration kLong = absl::Seconds(60);
constexpr LocalPlanId kPlan(1);

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class EmbeddedWorkerTest : public ::testing::Test {
 protected:
  EmbeddedWorkerTest() : random_(TestSeed()), layer_(kRanks, random_()), cluster_(layer_) {}

  void ExpectLayer() {
    OnEveryRank([&](int32_t rank) { RunLayer(layer_, *clients_[rank], kPlan); });
  }

  // Until the rank's worker runs an operation of its client: it refuses calls then.
  void AwaitOperation(int32_t rank) {
    RankTensors tensors(cluster_.group(), cluster_.buffer(), {});
    const absl::Time until = absl::Now() + kLong;
    absl::Status busy;
    const char* const wanted = "an operation of a local client is running";
    while (!absl::StrContains(busy.message(), wanted) && absl::Now() < until) {
      busy = tensors.Read(RankId(rank), "none").status();
    }
    EXPECT_TRUE(absl::StrContains(busy.message(), wanted)) << busy;
  }

  std::mt19937_64 random_;
  SmallLayer layer_;
  ClientCluster cluster_;
  std::vector<std::unique_ptr<RankClient>> clients_;
};

TEST_F(EmbeddedWorkerTest, ProgramsAndItsClientsExcludeEachOtherAndShareTheirSequences) {
  ASSERT_TRUE(cluster_.RunProgram().ok());
  clients_ = cluster_.Connect(Way::kEmbedded);
  const absl::Status refused = cluster_.RunProgram();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused), HasSubstr("(ranks 0, 1, 2)"));
  OnEveryRank([&](int32_t rank) {
    const auto done = clients_[rank]->Run(LocalBarrier{}, kLong);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(done->sequence, Sequence(2)) << "the program's barrier was the first";
  });
  clients_.clear();
  const absl::Status status = cluster_.AwaitProgram();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(cluster_.Ticket(0)->first_sequence(), 4u);
}

// The framework of rank 1 lives beside its worker, the others' in theirs.
TEST_F(EmbeddedWorkerTest, ItsClientsWorkWithLocalClientsOfOtherRanks) {
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const auto ticket = cluster_.Ticket(rank);
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    if (rank == 1) {
      clients_.push_back(*LocalClient::Attach(*ticket));
    } else {
      clients_.push_back(*cluster_.worker(rank).Attach(*ticket));
    }
  }
  ExpectLayer();
}

TEST_F(EmbeddedWorkerTest, AnotherRanksTicketIsRefusedAndSpent) {
  const auto ticket = cluster_.Ticket(1);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  const absl::Status refused = cluster_.worker(0).Attach(*ticket).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
  v1::AttachTicket forged = *ticket;
  forged.set_rank(2);
  EXPECT_EQ(cluster_.worker(1).Attach(forged).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(cluster_.worker(1).Attach(*ticket).ok()) << "spent by the forgery";
  const absl::Status status = cluster_.AwaitProgram();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(EmbeddedWorkerTest, AClientThatLeavesInTheMiddleEndsTheGenerationAndNoProcess) {
  clients_ = cluster_.Connect(Way::kEmbedded);
  const Generation last(cluster_.group().generation());
  ASSERT_TRUE(clients_[2]->Submit(LocalBarrier{}).ok());
  AwaitOperation(2);
  clients_[2].reset();
  for (const int32_t rank : {0, 1}) {
    const absl::Time until = absl::Now() + kLong;
    absl::Status ended;
    while (ended.ok() && absl::Now() < until) {
      ended = clients_[rank]->Run(LocalEmpty{}, kLong).status();
    }
    EXPECT_THAT(Message(ended), HasSubstr("workers/w2"));
  }
  clients_.clear();
  const auto next = cluster_.client().WaitForNextGeneration(cluster_.group().name(), last, kLong);
  ASSERT_TRUE(next.ok()) << next.status();
  const auto info = cluster_.client().GetGeneration(
      absl::StrCat(cluster_.group().name(), "/generations/", last.value));
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_THAT(info->end_reason(), HasSubstr("its client left in the middle of the operation"));
}

TEST_F(EmbeddedWorkerTest, AfterShutdownItTakesNobodyAndItsDirectoryIsGone) {
  EmbeddedWorker& worker = cluster_.worker(0);
  const std::filesystem::path directory =
      std::filesystem::path(worker.worker().socket_path()).parent_path();
  EXPECT_TRUE(std::filesystem::is_directory(directory));
  const auto ticket = cluster_.Ticket(0);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  worker.Shutdown();
  worker.Shutdown();
  EXPECT_EQ(worker.Attach(*ticket).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(directory));
}

// In a process of its own, worker and framework die together.
TEST(EmbeddedProcessTest, AKilledProcessIsNamedToTheOthersWhoGoOnInTheNextGeneration) {
  std::mt19937_64 random(TestSeed());
  const SmallLayer layer(kRanks, random());
  std::unique_ptr<Process> killed;
  ClientCluster cluster(layer, [&](const std::string& coordinator) {
    killed = std::make_unique<Process>(
        std::vector<std::string>{"tests/clients/embedded_rank_process", coordinator, "w2",
                                 "tenants/default/groups/g/buffers/b", "2"},
        std::vector<std::string>());
    ASSERT_TRUE(killed->AwaitOut("ready", kLong).has_value()) << killed->err();
  });
  ASSERT_TRUE(killed->AwaitOut("attached", kLong).has_value()) << killed->err();
  std::vector<std::unique_ptr<RankClient>> clients;
  for (const int32_t rank : {0, 1}) {
    clients.push_back(*cluster.worker(rank).Attach(*cluster.Ticket(rank)));
  }
  OnEveryRank([&](int32_t rank) {
    if (rank == 2) return;
    const auto together = clients[rank]->Run(LocalBarrier{}, kLong);
    ASSERT_TRUE(together.ok()) << together.status();
    EXPECT_TRUE(together->status.ok()) << together->status;
    if (rank == 0) killed->Signal(SIGKILL);
    absl::StatusOr<LocalCompletion> done = together;
    while (done.ok() && done->status.ok()) done = clients[rank]->Run(LocalBarrier{}, kLong);
    const absl::Status status = done.ok() ? done->status : done.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(Message(status), HasSubstr("workers/w2"));
  });
  clients.clear();
  cluster.Replace(2, layer);
  clients = cluster.Connect(Way::kEmbedded);
  OnEveryRank([&](int32_t rank) { RunLayer(layer, *clients[rank], kPlan); });
}

TEST(EmbeddedExampleTest, ItsSumsAreRight) {
  ScratchDirectory directory;
  CoordinatorOptions options;
  options.data_dir = directory.path() + "/data";
  const auto coordinator = Coordinator::Start(options);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  Process example({"client/examples/embedded_layer", (*coordinator)->address(), "3"}, {});
  EXPECT_EQ(example.AwaitExit(kLong), 0) << example.err();
  EXPECT_EQ(example.out(), "48 of 48 sums right on 3 ranks\n");
}

TEST_F(EmbeddedWorkerTest, AStartThatFailsLeavesNothing) {
  WorkerOptions options;
  options.name = "Not A Name";
  options.coordinator = "127.0.0.1:1";
  options.backend = CreateHostBackend();
  EXPECT_EQ(EmbeddedWorker::Start(std::move(options)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace perigee
