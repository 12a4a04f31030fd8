#include "tests/integration/local_client_fixture.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/device/copy.h"
#include "kernels/device/device_info.h"

namespace perigee {
namespace {

constexpr absl::Duration kLong = absl::Seconds(30);
constexpr double kRowTolerance = 0.03;

uint64_t Seed() {
  uint64_t seed = 0;
  const char* given = std::getenv("PERIGEE_SEED");
  if (given == nullptr || !absl::SimpleAtoi(given, &seed)) seed = std::random_device()();
  std::cout << "PERIGEE_SEED=" << seed << std::endl;
  return seed;
}

template <typename T>
TensorView View(std::vector<int64_t> shape, const std::vector<T>& data) {
  return {v1::TENSOR_DTYPE_BFLOAT16, std::move(shape),
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(data.data()),
                              data.size() * sizeof(T))};
}

void ExpectDone(LocalClient& client, const LocalOperation& operation) {
  const absl::StatusOr<LocalCompletion> done = client.Run(operation, kLong);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_TRUE(done->status.ok()) << CommandName(KindOf(operation)) << ": " << done->status;
}

}  // namespace

LocalClientTest::LocalClientTest()
    : random_(Seed()),
      layer_(LayerFile::Random({.ranks = kRanks, .tokens = 12, .experts = 8}, random_())) {}

void LocalClientTest::SetUp() {
  const std::string backend = GetParam();
  const CudaDevices devices = QueryCudaDevices();
  if (backend == "cuda" && devices.devices.empty()) GTEST_SKIP() << DescribeCudaDevices(devices);
  std::vector<std::string> on_gpu;
  if (backend == "cuda") on_gpu = {"--backend", "cuda", "--shared-gpu"};
  StartCluster(kRanks, on_gpu);
  auto client = Client::Connect({.address = address_, .stop = stop_.get_token()});
  ASSERT_TRUE(client.ok()) << client.status();
  client_ = *std::move(client);
  const auto group = client_->CreateGroup({.group_id = "g", .ranks = kRanks, .backend = backend});
  ASSERT_TRUE(group.ok()) << group.status();
  group_ = *group;
  BufferOptions options;
  options.buffer_id = "b";
  options.shape.set_tokens(layer_.sizes.tokens);
  options.shape.set_hidden(layer_.sizes.hidden);
  options.shape.set_topk(layer_.sizes.topk);
  options.shape.set_experts(layer_.sizes.experts);
  options.shape.set_token_padding(4);
  options.shape.set_intermediate(layer_.sizes.intermediate);
  options.shape.set_layers(1);
  const auto buffer = client_->CreateBuffer(group_.name(), options);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  buffer_ = buffer->name();
  LoadWeights();
}

void LocalClientTest::LoadWeights() {
  tensors_ = std::make_unique<RankTensors>(group_, buffer_, stop_.get_token());
  const LayerFile::Sizes& s = layer_.sizes;
  const LayerWeights weights = {View({s.experts, s.hidden, s.intermediate}, layer_.gate),
                                View({s.experts, s.hidden, s.intermediate}, layer_.up),
                                View({s.experts, s.intermediate, s.hidden}, layer_.down)};
  const absl::Status status = tensors_->LoadLayer(0, kVersion, weights);
  ASSERT_TRUE(status.ok()) << status;
}

absl::StatusOr<v1::AttachTicket> LocalClientTest::Ticket(int rank) {
  return client_->IssueAttachTicket(buffer_, Generation(group_.generation()), RankId(rank));
}

void LocalClientTest::AttachAll(int without) {
  clients_.clear();
  clients_.resize(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == without) continue;
    const auto ticket = Ticket(rank);
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    auto client = LocalClient::Attach(*ticket);
    ASSERT_TRUE(client.ok()) << client.status();
    clients_[rank] = *std::move(client);
  }
}

std::unique_ptr<Process> LocalClientTest::AttachProcess(int rank, bool in_barrier) {
  const auto ticket = Ticket(rank);
  EXPECT_TRUE(ticket.ok()) << ticket.status();
  const std::string path = absl::StrCat(scratch(), "/ticket", rank);
  if (ticket.ok()) {
    std::ofstream file(path, std::ios::binary);
    EXPECT_TRUE(ticket->SerializeToOstream(&file));
  }
  const char* program = std::getenv("PERIGEE_CLIENT_PROCESS");
  if (program == nullptr) program = "tests/integration/local_client_process";
  std::vector<std::string> argv = {program, path};
  if (in_barrier) argv.push_back("--barrier");
  auto process = std::make_unique<Process>(argv, std::vector<std::string>());
  EXPECT_TRUE(process->AwaitOut("attached", kStepTimeout).has_value()) << process->err();
  if (in_barrier) AwaitOperation(rank);
  return process;
}

// It refuses calls then.
void LocalClientTest::AwaitOperation(int rank) {
  const absl::Time until = absl::Now() + kStepTimeout;
  absl::Status busy;
  const char* const wanted = "an operation of a local client is running";
  while (!absl::StrContains(busy.message(), wanted) && absl::Now() < until) {
    busy = tensors_->Read(RankId(rank), "none").status();
  }
  EXPECT_TRUE(absl::StrContains(busy.message(), wanted)) << busy;
}

void LocalClientTest::Put(const LocalClient& client, void* to, const void* from,
                          size_t size_bytes) {
  if (size_bytes == 0) return;
  if (!client.device()) {
    std::memcpy(to, from, size_bytes);
    return;
  }
  const absl::Status status = CopyToDevice(client.device()->index, static_cast<std::byte*>(to),
                                           {static_cast<const std::byte*>(from), size_bytes});
  ASSERT_TRUE(status.ok()) << status;
}

void LocalClientTest::Get(const LocalClient& client, void* to, const void* from,
                          size_t size_bytes) {
  if (!client.device()) {
    std::memcpy(to, from, size_bytes);
    return;
  }
  const absl::Status status =
      CopyFromDevice(client.device()->index, {static_cast<std::byte*>(to), size_bytes},
                     static_cast<const std::byte*>(from));
  ASSERT_TRUE(status.ok()) << status;
}

void LocalClientTest::OnEveryRank(const std::function<void(int rank)>& work) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    if (clients_[rank]) threads.emplace_back([&work, rank] { work(rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

void LocalClientTest::WriteInputs(int rank, int tokens) {
  const LayerFile::Sizes& s = layer_.sizes;
  const LocalClient& client = *clients_[rank];
  const int first = rank * s.tokens;
  const auto put = [&](auto to, const auto& from, int width) {
    Put(client, to.data(), from.data() + first * width, tokens * width * sizeof(from[0]));
  };
  put(client.hidden(), layer_.hidden, s.hidden);
  put(client.topk_experts(), layer_.topk_experts, s.topk);
  put(client.route_weights(), layer_.route_weights, s.topk);
}

void LocalClientTest::RunLayer(int rank, int tokens) {
  const LayerFile::Sizes& s = layer_.sizes;
  LocalClient& client = *clients_[rank];
  WriteInputs(rank, tokens);
  std::vector<BFloat16> output(client.output().size(), ToBFloat16(1e30f));
  std::vector<float> gathered(client.gathered_weights().size(), -7.0f);
  Put(client, const_cast<BFloat16*>(client.output().data()), output.data(),
      output.size() * sizeof(output[0]));
  Put(client, const_cast<float*>(client.gathered_weights().data()), gathered.data(),
      gathered.size() * sizeof(gathered[0]));
  ExpectDone(client, LocalDispatch{kPlan, tokens, true});
  ExpectDone(client, LocalPrefetchWeights{kPlan, 0, kVersion});
  ExpectDone(client, LocalRunExperts{kPlan, 0, kVersion, true});
  ExpectDone(client, LocalCombine{kPlan, true});
  output = Get(client, client.output());
  gathered = Get(client, client.gathered_weights());
  // Row by row: rows, the experts' inner rows and sums are rounded to bf16 on the way, so that the
  // error of an element follows the size of its row.
  for (int token = 0; token < s.tokens; ++token) {
    double error = 0, size = 0;
    for (int h = 0; h < s.hidden; ++h) {
      const double expected =
          token < tokens ? layer_.expected[(rank * s.tokens + token) * s.hidden + h] : 0.0;
      error += std::pow(ToFloat(output[token * s.hidden + h]) - expected, 2);
      size += expected * expected;
    }
    EXPECT_LE(std::sqrt(error), kRowTolerance * std::sqrt(size))
        << "rank " << rank << ", token " << token;
  }
  for (int i = 0; i < s.tokens * s.topk; ++i) {
    const int route = rank * s.tokens * s.topk + i;
    const bool travels = i < tokens * s.topk && layer_.topk_experts[route] >= 0;
    EXPECT_EQ(gathered[i], travels ? layer_.route_weights[route] : 0.0f)
        << "rank " << rank << ", route " << i;
  }
}

absl::Status LocalClientTest::RunProgram() {
  v1::Program program;
  program.add_operations()->mutable_barrier();
  return client_->ExecuteProgram(buffer_, Generation(group_.generation()), program,
                                 [](const v1::ExecuteProgramResponse&) {});
}

absl::Status LocalClientTest::AwaitProgram() {
  absl::Status status = RunProgram();
  const absl::Time until = absl::Now() + kStepTimeout;
  while (absl::IsFailedPrecondition(status) && absl::Now() < until) status = RunProgram();
  return status;
}

}  // namespace perigee
