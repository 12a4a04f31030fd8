// Local clients as a framework sees them: every rank of a real cluster has one, which works in
// memory shared with its worker.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/local_client_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST_P(LocalClientTest, AWholeLayerComesOutRightOnEveryRank) {
  AttachAll();
  // All tokens, few, none; each with data of its own.
  for (int round = 0; round < 3; ++round) {
    if (round > 0) {
      const LayerFile fresh = LayerFile::Random(layer_.sizes, random_());
      layer_.hidden = fresh.hidden;
      layer_.topk_experts = fresh.topk_experts;
      layer_.route_weights = fresh.route_weights;
      layer_.ComputeExpected();
    }
    std::vector<int> tokens(kRanks, layer_.sizes.tokens);
    if (round > 0) {
      for (int& count : tokens) count = static_cast<int>(random_() % (layer_.sizes.tokens + 1));
      tokens[0] = 0;
    }
    OnEveryRank([&](int rank) { RunLayer(rank, tokens[rank]); });
  }
  EXPECT_EQ(clients_[0]->next_sequence(), Sequence(10)) << "three collective ones a round";
}

TEST_P(LocalClientTest, TheFrameworksOwnExpertsWorkInPlace) {
  AttachAll();
  const LayerFile::Sizes& s = layer_.sizes;
  OnEveryRank([&](int rank) {
    LocalClient& client = *clients_[rank];
    WriteInputs(rank, s.tokens);
    ASSERT_TRUE(client.Run(LocalDispatch{kPlan, s.tokens, false}, kLong)->status.ok());
    EXPECT_EQ(Get(client, absl::MakeConstSpan(client.plan().sequence, 1))[0], 1u);
    // Groups are where the plan says that they are; every one is doubled.
    const int groups = client.geometry().groups();
    const int used = Get(client, absl::MakeConstSpan(client.plan().cu_seqlens, groups)).back();
    std::vector<BFloat16> rows = Get(client, client.rows().first(used * s.hidden));
    for (BFloat16& value : rows) value = ToBFloat16(2 * ToFloat(value));
    Put(client, client.rows().data(), rows.data(), rows.size() * sizeof(rows[0]));
    ASSERT_TRUE(client.Run(LocalCombine{kPlan, false}, kLong)->status.ok());
    const std::vector<BFloat16> output = Get(client, client.output());
    for (int token = 0; token < s.tokens; ++token) {
      const int global = rank * s.tokens + token;
      const auto routes = layer_.topk_experts.begin() + global * s.topk;
      const double times =
          2.0 * std::count_if(routes, routes + s.topk, [](int32_t expert) { return expert >= 0; });
      for (int h = 0; h < s.hidden; ++h) {
        EXPECT_NEAR(ToFloat(output[token * s.hidden + h]),
                    times * ToFloat(layer_.hidden[global * s.hidden + h]),
                    0.02 * std::abs(times * ToFloat(layer_.hidden[global * s.hidden + h])));
      }
    }
  });
}

TEST_P(LocalClientTest, ProgramsAndClientsExcludeEachOtherAndShareTheirSequences) {
  ASSERT_TRUE(RunProgram().ok());
  AttachAll();
  EXPECT_EQ(clients_[2]->next_sequence(), Sequence(2));
  const absl::Status refused = RunProgram();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(refused), HasSubstr("(ranks 0, 1, 2, 3)"));
  EXPECT_THAT(RunPerigee({"get", "buffers", "g/b", "--address", address_}).out,
              HasSubstr("0, 1, 2, 3"));
  for (const char* what : {"buffers", "groups"}) {
    const std::string name = what == std::string("buffers") ? "g/b" : "g";
    EXPECT_THAT(RunPerigee({"describe", what, name, "--address", address_}).out,
                ::testing::ContainsRegex("client of rank 3: +pid " + std::to_string(getpid()) +
                                         ", attached 2"));
  }
  EXPECT_EQ(client_->DeleteBuffer(buffer_).code(), absl::StatusCode::kFailedPrecondition);
  OnEveryRank([&](int rank) { RunLayer(rank, layer_.sizes.tokens); });
  LoadWeights();  // calls come between operations
  OnEveryRank([&](int rank) { RunLayer(rank, layer_.sizes.tokens); });
  for (const auto& client : clients_) EXPECT_TRUE(client->Detach().ok());
  const absl::Status detached = clients_[0]->Submit(LocalBarrier{}).status();
  EXPECT_EQ(detached.code(), absl::StatusCode::kFailedPrecondition);
  const absl::Status status = AwaitProgram();
  EXPECT_TRUE(status.ok()) << status;
  const auto ticket = Ticket(1);
  ASSERT_TRUE(ticket.ok()) << ticket.status();
  EXPECT_EQ(ticket->first_sequence(), 9u) << "1 + 6 + 1 were used";
}

TEST_P(LocalClientTest, ABadRouteIsToldToEveryClientAndAllGoOn) {
  AttachAll();
  OnEveryRank([&](int rank) {
    WriteInputs(rank, layer_.sizes.tokens);
    const int32_t bad = 44;
    if (rank == 1) Put(*clients_[rank], &clients_[rank]->topk_experts()[5], &bad, sizeof(bad));
    const auto told = clients_[rank]->Run(LocalDispatch{kPlan, layer_.sizes.tokens, true}, kLong);
    ASSERT_TRUE(told.ok()) << told.status();
    EXPECT_EQ(told->reason, "BAD_ROUTE");
    EXPECT_THAT(Message(told->status), HasSubstr("44"));
    EXPECT_EQ(told->token, 5 / layer_.sizes.topk);
    RunLayer(rank, layer_.sizes.tokens);
  });
}

// Nobody waits between a rank's commands; on backend cuda all of them are queued there.
TEST_P(LocalClientTest, CommandsUnderWayEndInOrderAndThoseBehindAFailureAreToldApart) {
  AttachAll();
  OnEveryRank([&](int rank) {
    LocalClient& client = *clients_[rank];
    WriteInputs(rank, layer_.sizes.tokens);
    const LocalDispatch good{kPlan, layer_.sizes.tokens, true};
    const LocalPlanId none(7);
    std::vector<uint64_t> commands;
    std::vector<std::string> reasons;
    // A combine by a plan that there is not is refused by every rank.
    for (const LocalOperation& operation :
         {LocalOperation(LocalBarrier{}), LocalOperation(good),
          LocalOperation(LocalCombine{none, false}), LocalOperation(LocalCombine{kPlan, true}),
          LocalOperation(LocalEmpty{}), LocalOperation(LocalBarrier{})}) {
      const auto command = client.Submit(operation);
      ASSERT_TRUE(command.ok()) << command.status();
      commands.push_back(*command);
    }
    for (const uint64_t command : commands) {
      const auto done = client.Wait(command, kLong);
      ASSERT_TRUE(done.ok()) << done.status();
      EXPECT_EQ(done->position, command);
      EXPECT_EQ(done->reason.empty(), done->status.ok()) << done->status;
      reasons.push_back(done->reason);
    }
    // What is refused in the middle leaves the rows undefined for all, on either backend.
    EXPECT_THAT(reasons, ::testing::ElementsAre("", "", "STALE_OBJECT", "STALE_OBJECT", "", ""));
    RunLayer(rank, layer_.sizes.tokens);
  });
}

TEST_P(LocalClientTest, ACommandThatOneRankRefusesIsToldToTheOthers) {
  AttachAll();
  OnEveryRank([&](int rank) {
    const int tokens = rank == 2 ? layer_.sizes.tokens + 1 : layer_.sizes.tokens;
    WriteInputs(rank, layer_.sizes.tokens);
    const auto done = clients_[rank]->Run(LocalDispatch{kPlan, tokens, true}, kLong);
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_EQ(done->reason, rank == 2 ? "INVALID_PROGRAM" : "DECLINED") << done->status;
    if (rank != 2) {
      EXPECT_EQ(done->awaited_rank, 2);
    }
    RunLayer(rank, layer_.sizes.tokens);
  });
}

TEST_P(LocalClientTest, AKilledWorkerEndsEveryClientWithItsName) {
  AttachAll();
  OnEveryRank([&](int rank) { RunLayer(rank, layer_.sizes.tokens); });
  OnEveryRank([&](int rank) {
    if (rank == 3) {
      ASSERT_EQ(kill(worker_pids_[3], SIGKILL), 0);
      const absl::Status gone = clients_[rank]->Run(LocalBarrier{}, kLong).status();
      EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable) << gone;
      return;
    }
    // Where the abort comes before the command is taken, the attachment's end tells.
    const auto aborted = clients_[rank]->Run(LocalBarrier{}, kLong);
    const absl::Status status = aborted.ok() ? aborted->status : aborted.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(Message(status), HasSubstr("workers/w3"));
    if (aborted.ok()) {
      EXPECT_THAT(aborted->lost, ::testing::ElementsAre(3));
    }
  });
  clients_.clear();
  const auto next =
      client_->WaitForNextGeneration(group_.name(), Generation(group_.generation()), kStepTimeout);
  ASSERT_TRUE(next.ok()) << next.status();
  const auto stale = Ticket(0);
  EXPECT_EQ(stale.status().code(), absl::StatusCode::kFailedPrecondition);
  group_ = *next;
  LoadWeights();
  AttachAll();
  OnEveryRank([&](int rank) { RunLayer(rank, layer_.sizes.tokens); });
}

TEST_P(LocalClientTest, AKilledClientEndsTheOthersAndTheGenerationLives) {
  const auto killed = AttachProcess(1, /*in_barrier=*/false);
  AttachAll(/*without=*/1);
  killed->Signal(SIGKILL);
  for (const int rank : {0, 2, 3}) {
    absl::Status ended;
    while (ended.ok()) ended = clients_[rank]->Run(LocalEmpty{}, kLong).status();
    EXPECT_EQ(ended.code(), absl::StatusCode::kCancelled) << ended;
    EXPECT_THAT(Message(ended), HasSubstr("the client of rank 1 (workers/w1) has gone"));
  }
  clients_.clear();
  const absl::Status status = AwaitProgram();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(client_->GetGroup(group_.name())->generation(), group_.generation());
  AttachAll();
  OnEveryRank([&](int rank) { RunLayer(rank, layer_.sizes.tokens); });
}

// It has submitted nothing, and the others' operation cannot go on without it.
TEST_P(LocalClientTest, AClientThatOthersWaitForIsNamedToThemLongBeforeTheirDeadline) {
  BufferOptions patient;
  patient.buffer_id = "patient";
  patient.shape = client_->GetBuffer(buffer_)->shape();
  patient.operation_timeout = absl::Hours(1);
  const auto buffer = client_->CreateBuffer(group_.name(), patient);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  buffer_ = buffer->name();
  tensors_ = std::make_unique<RankTensors>(group_, buffer_, stop_.get_token());
  const auto killed = AttachProcess(1, /*in_barrier=*/false);
  AttachAll(/*without=*/1);
  std::vector<uint64_t> commands(kRanks);
  for (const int rank : {0, 2, 3}) {
    const auto command = clients_[rank]->Submit(LocalBarrier{});
    ASSERT_TRUE(command.ok()) << command.status();
    commands[rank] = *command;
    AwaitOperation(rank);
  }
  killed->Signal(SIGKILL);
  for (const int rank : {0, 2, 3}) {
    const auto done = clients_[rank]->Wait(commands[rank], kLong);
    const absl::Status ended = done.ok() ? done->status : done.status();
    EXPECT_TRUE(absl::IsCancelled(ended) || absl::IsUnavailable(ended)) << ended;
    EXPECT_THAT(Message(ended), HasSubstr("the client of rank 1 (workers/w1) has gone"));
  }
  clients_.clear();
  const auto next =
      client_->WaitForNextGeneration(group_.name(), Generation(group_.generation()), kStepTimeout);
  EXPECT_TRUE(next.ok()) << next.status();
}

// As one that goes: it has submitted nothing, and the others' operation cannot go on without it.
TEST_P(LocalClientTest, AClientThatLeavesWhileOthersWaitForItIsNamedToThemToo) {
  BufferOptions patient;
  patient.buffer_id = "patient";
  patient.shape = client_->GetBuffer(buffer_)->shape();
  patient.operation_timeout = absl::Hours(1);
  const auto buffer = client_->CreateBuffer(group_.name(), patient);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  buffer_ = buffer->name();
  tensors_ = std::make_unique<RankTensors>(group_, buffer_, stop_.get_token());
  AttachAll();
  std::vector<uint64_t> commands(kRanks);
  for (const int rank : {0, 2, 3}) {
    const auto command = clients_[rank]->Submit(LocalBarrier{});
    ASSERT_TRUE(command.ok()) << command.status();
    commands[rank] = *command;
    AwaitOperation(rank);
  }
  EXPECT_TRUE(clients_[1]->Detach().ok());
  for (const int rank : {0, 2, 3}) {
    const auto done = clients_[rank]->Wait(commands[rank], kLong);
    const absl::Status ended = done.ok() ? done->status : done.status();
    EXPECT_TRUE(absl::IsCancelled(ended) || absl::IsUnavailable(ended)) << ended;
    EXPECT_THAT(Message(ended), HasSubstr("the client of rank 1 (workers/w1) has left"));
  }
  clients_.clear();
  const auto next =
      client_->WaitForNextGeneration(group_.name(), Generation(group_.generation()), kStepTimeout);
  EXPECT_TRUE(next.ok()) << next.status();
}

TEST_P(LocalClientTest, AClientKilledInAnOperationEndsTheGenerationForAll) {
  const auto killed = AttachProcess(1, /*in_barrier=*/true);
  AttachAll(/*without=*/1);
  killed->Signal(SIGKILL);
  for (const int rank : {0, 2, 3}) {
    absl::Status ended;
    while (ended.ok()) ended = clients_[rank]->Run(LocalEmpty{}, kLong).status();
    // Either the end that the coordinator asked for or that of the generation comes first.
    EXPECT_TRUE(absl::IsCancelled(ended) || absl::IsUnavailable(ended)) << ended;
    EXPECT_THAT(Message(ended), HasSubstr("workers/w1"));
  }
  clients_.clear();
  const auto next =
      client_->WaitForNextGeneration(group_.name(), Generation(group_.generation()), kStepTimeout);
  ASSERT_TRUE(next.ok()) << next.status();
  const auto ended =
      client_->GetGeneration(group_.name() + "/generations/" + std::to_string(group_.generation()));
  ASSERT_TRUE(ended.ok()) << ended.status();
  EXPECT_THAT(ended->end_reason(), HasSubstr("its client left in the middle of the operation"));
  group_ = *next;
  LoadWeights();
  AttachAll();
  OnEveryRank([&](int rank) { RunLayer(rank, layer_.sizes.tokens); });
}

INSTANTIATE_TEST_SUITE_P(Backends, LocalClientTest, ::testing::Values("host", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace perigee
