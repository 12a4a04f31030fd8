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
#include "kernels/backend_registry.h"
#include "kernels/common/check.h"
#include "kernels/device/copy.h"

namespace perigee {
namespace {

constexpr absl::Duration kStep = absl::Seconds(60);
constexpr int32_t kSmsOfWorker = 16;

template <typename Value>
Value Need(absl::StatusOr<Value> value) {
  EXPECT_TRUE(value.ok()) << value.status();
  PERIGEE_CHECK(value.ok());
  return *std::move(value);
}

template <typename T>
void CopyBytes(const RankMemory& memory, const std::string& bytes, absl::Span<T> to) {
  ASSERT_LE(bytes.size(), to.size() * sizeof(T));
  CopyIn(memory, to.data(), bytes.data(), bytes.size());
}

template <typename T>
void Poison(const RankMemory& memory, absl::Span<const T> values, T with) {
  Put(memory, const_cast<T*>(values.data()), std::vector<T>(values.size(), with));
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
  const RankMemory memory = client.memory();
  const PlanArrays& plan = memory.plan;
  EXPECT_NE(Get(memory, plan.sequence, 1)[0], 0u);
  // Routes past the rank's tokens are not part of the plan.
  const size_t routes = layer.Inputs(rank)[1].bytes.size() / sizeof(int32_t);
  const std::vector<int32_t> dst = Get(memory, plan.dst, routes);
  for (size_t i = 0; i < routes; ++i) EXPECT_EQ(dst[i], expected.dst[rank][i]) << i;
  const std::vector<int32_t> ends = Get(memory, plan.cu_seqlens, geometry.groups());
  const std::vector<int32_t> fill = Get(memory, plan.zero_fill_ranges, 2 * geometry.groups());
  for (int32_t group = 0; group < geometry.groups(); ++group) {
    EXPECT_EQ(ends[group], expected.cu_seqlens[rank][group]) << group;
    for (int32_t i = 0; i < 2; ++i) {
      EXPECT_EQ(fill[2 * group + i], expected.zero_fill[rank][group][i]) << group;
    }
  }
  const std::vector<int32_t> copied =
      Get(memory, plan.experts_to_copy, geometry.ranks * geometry.slots);
  const std::vector<int32_t> load = Get(memory, plan.load, geometry.ranks);
  const std::vector<int32_t> home = Get(memory, plan.home_load, geometry.ranks);
  int32_t routed = 0, home_load = 0;
  for (int32_t r = 0; r < geometry.ranks; ++r) {
    for (int32_t slot = 0; slot < geometry.slots; ++slot) {
      EXPECT_EQ(copied[r * geometry.slots + slot], expected.experts_to_copy[r][slot]);
    }
    routed += load[r];
    home_load += home[r];
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
    ASSERT_EQ(
        BytesOf(memory, memory.rows.subspan(row * client.hidden_size(), client.hidden_size())),
        inputs[0].bytes.substr(source.token * row_bytes, row_bytes))
        << "row " << row;
    const size_t route = source.token * geometry.topk + source.k;
    ASSERT_EQ(BytesOf(memory, memory.row_weights.subspan(row, 1)),
              inputs[2].bytes.substr(route * sizeof(float), sizeof(float)))
        << "row " << row;
  }
}

}  // namespace

void SeparateHardwareQueues() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "32", /*overwrite=*/0);
}

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

ClientCluster::ClientCluster(const SmallLayer& layer, const StartLast& start_last,
                             const std::string& backend)
    : backend_(backend), workers_(kRanks) {
  CoordinatorOptions options;
  options.data_dir = data_dir();
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
  group_ = Need(client_->CreateGroup({.group_id = "g", .ranks = kRanks, .backend = backend}));
  buffer_ = CreateBuffer("b", layer, absl::ZeroDuration());
  if (!start_last) LoadWeights(layer);
}

std::string ClientCluster::CreateBuffer(const std::string& id, const SmallLayer& layer,
                                        absl::Duration operation_timeout) {
  BufferOptions buffer;
  buffer.buffer_id = id;
  buffer.shape = layer.shape();
  buffer.shape.set_gradients(true);
  buffer.shape.set_peer_store(true);
  buffer.shape.set_source_storage(true);
  buffer.shape.set_dispatch_output_slots(kDispatchOutputSlots);
  buffer.shape.set_expert_output_slots(kExpertOutputSlots);
  buffer.operation_timeout = operation_timeout;
  if (backend_ == "cuda") buffer.sms = kSmsOfWorker / 2;  // leaves as many to one more
  return Need(client_->CreateBuffer(group_.name(), buffer)).name();
}

std::string ClientCluster::AddBuffer(const std::string& id, const SmallLayer& layer,
                                     absl::Duration operation_timeout) {
  const std::string buffer = CreateBuffer(id, layer, operation_timeout);
  LoadWeights(buffer, layer);
  return buffer;
}

void ClientCluster::Start(int32_t rank) {
  WorkerOptions options;
  options.name = absl::StrCat("w", rank);
  options.coordinator = coordinator_->address();
  BackendChoice choice;
  if (backend_ == "cuda") choice.sms = kSmsOfWorker;
  options.backend = Need(CreateBackend(backend_, choice));
  workers_[rank] = Need(EmbeddedWorker::Start(std::move(options)));
}

void ClientCluster::LoadWeights(const std::string& buffer, const SmallLayer& layer) {
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
  RankTensors tensors(group_, buffer, {});
  const absl::Status status =
      tensors.LoadLayer(0, kVersion, {view(whole[0]), view(whole[1]), view(whole[2])});
  ASSERT_TRUE(status.ok()) << status;
}

absl::StatusOr<v1::AttachTicket> ClientCluster::Ticket(const std::string& buffer, int32_t rank) {
  return client_->IssueAttachTicket(buffer, Generation(group_.generation()), RankId(rank));
}

std::vector<std::unique_ptr<RankClient>> ClientCluster::Connect(Way way,
                                                                const std::string& buffer) {
  if (way == Way::kRemote) return Need(OpenRemoteRanks(*client_, buffer));
  std::vector<std::unique_ptr<RankClient>> clients;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const v1::AttachTicket ticket = Need(Ticket(buffer, rank));
    if (way == Way::kEmbedded) {
      clients.push_back(Need(workers_[rank]->Attach(ticket)));
    } else {
      clients.push_back(Need(LocalClient::Attach(ticket)));
    }
  }
  return clients;
}

PublicationTokenBytes ClientCluster::Token(const std::string& buffer, int32_t rank) {
  const auto issued = Need(client_->IssueTokens(buffer, Generation(), RankId(rank), 1, ""));
  PublicationTokenBytes token;
  PERIGEE_CHECK(issued.tokens_size() == 1 && issued.tokens(0).size() == token.size());
  issued.tokens(0).copy(token.data(), token.size());
  return token;
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

void CopyIn(const RankMemory& memory, void* to, const void* from, size_t bytes) {
  auto* const place = static_cast<std::byte*>(to);
  const auto values = absl::MakeConstSpan(static_cast<const std::byte*>(from), bytes);
  if (memory.device >= 0) {
    const absl::Status status = CopyToDevice(memory.device, place, values);
    ASSERT_TRUE(status.ok()) << status;
  } else if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

void CopyOut(const RankMemory& memory, void* to, const void* from, size_t bytes) {
  if (memory.device >= 0) {
    const absl::Status status =
        CopyFromDevice(memory.device, absl::MakeSpan(static_cast<std::byte*>(to), bytes),
                       static_cast<const std::byte*>(from));
    ASSERT_TRUE(status.ok()) << status;
  } else if (bytes > 0) {
    std::memcpy(to, from, bytes);
  }
}

int32_t WriteTokens(const SmallLayer& layer, int32_t rank, const RankMemory& memory) {
  const std::vector<LayerTensor> inputs = layer.Inputs(rank);
  CopyBytes(memory, inputs[0].bytes, memory.hidden);
  CopyBytes(memory, inputs[1].bytes, memory.topk_experts);
  CopyBytes(memory, inputs[2].bytes, memory.route_weights);
  return static_cast<int32_t>(inputs[0].header.shape(0));
}

void RunLayer(const SmallLayer& layer, RankClient& client, LocalPlanId plan) {
  const int32_t rank = client.rank().value;
  SCOPED_TRACE(absl::StrCat("rank ", rank));
  const RankMemory memory = client.memory();
  const int32_t tokens = WriteTokens(layer, rank, memory);
  Poison(memory, memory.output, ToBFloat16(1e30f));
  Poison(memory, memory.gathered_weights, -7.0f);
  ExpectDone(client, LocalDispatch{plan, tokens, true});
  FinishLayer(layer, client, plan);
}

void FinishLayer(const SmallLayer& layer, RankClient& client, LocalPlanId plan) {
  const int32_t rank = client.rank().value;
  const RankMemory memory = client.memory();
  ExpectPlan(layer, client);
  ExpectRows(layer, client);
  ExpectDone(client, LocalPrefetchWeights{plan, 0, ClientCluster::kVersion});
  ExpectDone(client, LocalRunExperts{plan, 0, ClientCluster::kVersion, true});
  ExpectDone(client, LocalCombine{plan, true});
  EXPECT_LE(
      RelativeError(BFloat16Values(BytesOf(memory, memory.output)), layer.ExpectedOutput(rank)),
      kSmallLayerTolerance);
  EXPECT_EQ(BytesOf(memory, memory.gathered_weights), layer.ExpectedGathered(rank));
}

}  // namespace perigee
