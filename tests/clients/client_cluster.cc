#include "tests/clients/client_cluster.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/lib/local_client.h"
#include "client/lib/rank_tensors.h"
#include "client/lib/remote_ranks.h"
#include "gtest/gtest.h"
#include "kernels/common/check.h"
#include "kernels/host/host_backend.h"

namespace perigee {
namespace {

constexpr absl::Duration kStep = absl::Seconds(60);
constexpr double kSumTolerance = 2e-3;

template <typename Value>
Value Need(absl::StatusOr<Value> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  PERIGEE_CHECK(value.ok());
  return *std::move(value);
}

template <typename T>
void CopyBytes(const std::string& bytes, absl::Span<T> to) {
  ASSERT_LE(bytes.size(), to.size() * sizeof(T));
  std::memcpy(to.data(), bytes.data(), bytes.size());
}

template <typename T>
std::string BytesOf(absl::Span<T> values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <typename T>
void Poison(absl::Span<const T> values, T with) {
  std::fill_n(const_cast<T*>(values.data()), values.size(), with);
}

void ExpectDone(RankClient& client, const LocalOperation& operation) {
  const absl::StatusOr<LocalCompletion> done = client.Run(operation, kStep);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->status.ok()) << CommandName(KindOf(operation)) << ": " << done->status;
  EXPECT_EQ(done->rank, client.rank().value);
  EXPECT_EQ(done->kind, static_cast<uint32_t>(KindOf(operation)));
  EXPECT_EQ(done->sequence.value != 0, IsCollective(KindOf(operation)));
}

void ExpectPlan(const SmallLayer& layer, const RankClient& client) {
  const Geometry& geometry = client.geometry();
  const int32_t rank = client.rank().value;
  const ReferencePlan& expected = layer.plan();
  const PlanArrays plan = client.memory().plan;
  EXPECT_NE(*plan.sequence, 0u);
  // Routes past the rank's tokens are not part of the plan.
  const size_t routes = layer.Inputs(rank)[1].bytes.size() / sizeof(int32_t);
  for (size_t i = 0; i < routes; ++i) EXPECT_EQ(plan.dst[i], expected.dst[rank][i]) << i;
  for (int32_t group = 0; group < geometry.groups(); ++group) {
    EXPECT_EQ(plan.cu_seqlens[group], expected.cu_seqlens[rank][group]) << group;
    for (int32_t i = 0; i < 2; ++i) {
      EXPECT_EQ(plan.zero_fill_ranges[2 * group + i], expected.zero_fill[rank][group][i]) << group;
    }
  }
  int32_t routed = 0, home_load = 0;
  for (int32_t r = 0; r < geometry.ranks; ++r) {
    for (int32_t slot = 0; slot < geometry.slots; ++slot) {
      EXPECT_EQ(plan.experts_to_copy[r * geometry.slots + slot], expected.experts_to_copy[r][slot]);
    }
    routed += plan.load[r];
    home_load += plan.home_load[r];
  }
  EXPECT_EQ(routed, home_load) << "the balancing loses no route";
}

// Where the shard is in reach: every route's row and weight lies where the plan says.
void ExpectRows(const SmallLayer& layer, const RankClient& client) {
  const RankMemory memory = client.memory();
  if (memory.rows.empty()) return;
  const Geometry& geometry = client.geometry();
  const int32_t rank = client.rank().value;
  const std::vector<RowSource> sources = RowSourcesOf(geometry, layer.plan(), rank);
  for (size_t row = 0; row < sources.size(); ++row) {
    const RowSource& source = sources[row];
    if (source.kind != RowSource::Kind::kRoute) continue;
    const std::vector<LayerTensor> inputs = layer.Inputs(source.rank);
    const size_t row_bytes = client.hidden_size() * sizeof(BFloat16);
    ASSERT_EQ(BytesOf(memory.rows.subspan(row * client.hidden_size(), client.hidden_size())),
              inputs[0].bytes.substr(source.token * row_bytes, row_bytes))
        << "row " << row;
    const size_t route = source.token * geometry.topk + source.k;
    ASSERT_EQ(BytesOf(memory.row_weights.subspan(row, 1)),
              inputs[2].bytes.substr(route * sizeof(float), sizeof(float)))
        << "row " << row;
  }
}

}  // namespace

std::string NameOf(Way way) {
  switch (way) {
    case Way::kRemote:
      return "Remote";
    case Way::kLocal:
      return "Local";
    case Way::kEmbedded:
      return "Embedded";
  }
  return "";
}

ClientCluster::ClientCluster(const SmallLayer& layer, const StartLast& start_last)
    : workers_(kRanks) {
  CoordinatorOptions options;
  options.data_dir = directory_.path() + "/data";
  // Whoever goes breaks its stream; a busy machine is no reason to be lost.
  options.lease_duration = absl::Minutes(1);
  coordinator_ = Need(Coordinator::Start(options));
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    if (rank + 1 == kRanks && start_last) {
      start_last(coordinator_->address());
    } else {
      Start(rank);
    }
  }
  client_ = Need(Client::Connect({.address = coordinator_->address()}));
  group_ = Need(client_->CreateGroup({.group_id = "g", .ranks = kRanks}));
  BufferOptions buffer;
  buffer.buffer_id = "b";
  buffer.shape = layer.shape();
  buffer_ = Need(client_->CreateBuffer(group_.name(), buffer)).name();
  if (!start_last) LoadWeights(layer);
}

void ClientCluster::Start(int32_t rank) {
  WorkerOptions options;
  options.name = absl::StrCat("w", rank);
  options.coordinator = coordinator_->address();
  options.backend = CreateHostBackend();
  workers_[rank] = Need(EmbeddedWorker::Start(std::move(options)));
}

void ClientCluster::LoadWeights(const SmallLayer& layer) {
  std::vector<LayerTensor> whole = layer.Weights(0);  // gate, up, down
  for (int32_t rank = 1; rank < kRanks; ++rank) {
    const std::vector<LayerTensor> home = layer.Weights(rank);
    for (size_t i = 0; i < whole.size(); ++i) whole[i].bytes += home[i].bytes;
  }
  const auto view = [](const LayerTensor& tensor) {
    return TensorView{
        tensor.header.dtype(),
        {tensor.header.shape(0) * kRanks, tensor.header.shape(1), tensor.header.shape(2)},
        {reinterpret_cast<const std::byte*>(tensor.bytes.data()), tensor.bytes.size()}};
  };
  RankTensors tensors(group_, buffer_, {});
  const absl::Status status =
      tensors.LoadLayer(0, kVersion, {view(whole[0]), view(whole[1]), view(whole[2])});
  ASSERT_TRUE(status.ok()) << status;
}

absl::StatusOr<v1::AttachTicket> ClientCluster::Ticket(int32_t rank) {
  return client_->IssueAttachTicket(buffer_, Generation(group_.generation()), RankId(rank));
}

std::vector<std::unique_ptr<RankClient>> ClientCluster::Connect(Way way) {
  if (way == Way::kRemote) return Need(OpenRemoteRanks(*client_, buffer_));
  std::vector<std::unique_ptr<RankClient>> clients;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const v1::AttachTicket ticket = Need(Ticket(rank));
    if (way == Way::kEmbedded) {
      clients.push_back(Need(workers_[rank]->Attach(ticket)));
    } else {
      clients.push_back(Need(LocalClient::Attach(ticket)));
    }
  }
  return clients;
}

absl::Status ClientCluster::RunProgram() {
  v1::Program program;
  program.add_operations()->mutable_barrier();
  return client_->ExecuteProgram(buffer_, Generation(group_.generation()), program,
                                 [](const v1::ExecuteProgramResponse&) {});
}

absl::Status ClientCluster::AwaitProgram() {
  absl::Status status = RunProgram();
  const absl::Time until = absl::Now() + kStep;
  while (absl::IsFailedPrecondition(status) && absl::Now() < until) status = RunProgram();
  return status;
}

void ClientCluster::Replace(int32_t rank, const SmallLayer& layer) {
  const Generation last(group_.generation());
  workers_[rank].reset();
  Start(rank);
  group_ = Need(client_->WaitForNextGeneration(group_.name(), last, kStep));
  LoadWeights(layer);
}

uint64_t TestSeed() {
  uint64_t seed = 0;
  const char* given = std::getenv("PERIGEE_SEED");
  if (given == nullptr || !absl::SimpleAtoi(given, &seed)) seed = std::random_device()();
  std::cout << "PERIGEE_SEED=" << seed << std::endl;
  return seed;
}

void OnEveryRank(const std::function<void(int32_t rank)>& work) {
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ClientCluster::kRanks; ++rank) {
    threads.emplace_back([&work, rank] { work(rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

int32_t WriteTokens(const SmallLayer& layer, int32_t rank, const RankMemory& memory) {
  const std::vector<LayerTensor> inputs = layer.Inputs(rank);
  CopyBytes(inputs[0].bytes, memory.hidden);
  CopyBytes(inputs[1].bytes, memory.topk_experts);
  CopyBytes(inputs[2].bytes, memory.route_weights);
  return static_cast<int32_t>(inputs[0].header.shape(0));
}

void RunLayer(const SmallLayer& layer, RankClient& client, LocalPlanId plan) {
  const int32_t rank = client.rank().value;
  SCOPED_TRACE(absl::StrCat("rank ", rank));
  const RankMemory memory = client.memory();
  const int32_t tokens = WriteTokens(layer, rank, memory);
  Poison(memory.output, ToBFloat16(1e30f));
  Poison(memory.gathered_weights, -7.0f);
  ExpectDone(client, LocalDispatch{plan, tokens, true});
  ExpectPlan(layer, client);
  ExpectRows(layer, client);
  ExpectDone(client, LocalPrefetchWeights{plan, 0, ClientCluster::kVersion});
  ExpectDone(client, LocalRunExperts{plan, 0, ClientCluster::kVersion, true});
  ExpectDone(client, LocalCombine{plan, true});
  EXPECT_LE(RelativeError(BFloat16Values(BytesOf(memory.output)), layer.ExpectedOutput(rank)),
            kSumTolerance);
  EXPECT_EQ(BytesOf(memory.gathered_weights), layer.ExpectedGathered(rank));
}

}  // namespace perigee
