// The service as a remote client program sees it: groups, buffers, tensors and programs through
// client/lib against real processes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/client.h"
#include "client/lib/group_error.h"
#include "client/lib/grpc_call.h"
#include "client/lib/program_monitor.h"
#include "client/lib/rank_tensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/common/bfloat16.h"
#include "kernels/layout/abi.h"
#include "proto/support/grpc_status.h"
#include "proto/v1/topology.grpc.pb.h"
#include "tests/integration/cluster_fixture.h"
#include "tests/testing/layer_file.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 2;
constexpr uint64_t kVersion = 3;

template <typename T>
TensorView View(v1::TensorDtype dtype, std::vector<int64_t> shape, const std::vector<T>& data) {
  return {dtype, std::move(shape),
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(data.data()),
                              data.size() * sizeof(T))};
}

class ServiceTest : public ClusterTest {
 protected:
  ServiceTest() : layer_(LayerFile::Random({.ranks = kRanks, .tokens = 6}, 11)) {}

  void SetUp() override {
    StartCluster(kRanks);
    auto client = Client::Connect({.address = address_, .stop = stop_.get_token()});
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    const auto group = client_->CreateGroup({.group_id = "g", .ranks = kRanks});
    ASSERT_TRUE(group.ok()) << group.status();
    group_ = *group;
  }

  BufferOptions Shape() const {
    BufferOptions options;
    options.buffer_id = "b";
    options.shape.set_tokens(layer_.sizes.tokens);
    options.shape.set_hidden(layer_.sizes.hidden);
    options.shape.set_topk(layer_.sizes.topk);
    options.shape.set_experts(layer_.sizes.experts);
    options.shape.set_token_padding(4);
    options.shape.set_intermediate(layer_.sizes.intermediate);
    options.shape.set_layers(1);
    return options;
  }

  // A buffer with weights and, on each rank, the first token_counts[rank] of its tokens.
  void Load(const std::vector<int>& token_counts) {
    if (buffer_.empty()) {
      const auto buffer = client_->CreateBuffer(group_.name(), Shape());
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      buffer_ = buffer->name();
    }
    tensors_ = std::make_unique<RankTensors>(group_, buffer_, stop_.get_token());
    const LayerFile::Sizes& s = layer_.sizes;
    const LayerWeights weights = {
        View(v1::TENSOR_DTYPE_BFLOAT16, {s.experts, s.hidden, s.intermediate}, layer_.gate),
        View(v1::TENSOR_DTYPE_BFLOAT16, {s.experts, s.hidden, s.intermediate}, layer_.up),
        View(v1::TENSOR_DTYPE_BFLOAT16, {s.experts, s.intermediate, s.hidden}, layer_.down)};
    ASSERT_TRUE(tensors_->LoadLayer(0, kVersion, weights).ok());
    for (int rank = 0; rank < kRanks; ++rank) WriteInputs(rank, token_counts[rank]);
  }

  void WriteInputs(int rank, int tokens) {
    const LayerFile::Sizes& s = layer_.sizes;
    const int64_t all = int64_t{kRanks} * s.tokens, first = int64_t{rank} * s.tokens;
    const auto write = [&](const char* name, const TensorView& whole) {
      const absl::Status status = tensors_->Write(RankId(rank), name, Slice(whole, first, tokens));
      EXPECT_TRUE(status.ok()) << name << ": " << status;
    };
    write("hidden", View(v1::TENSOR_DTYPE_BFLOAT16, {all, s.hidden}, layer_.hidden));
    write("routes", View(v1::TENSOR_DTYPE_INT32, {all, s.topk}, layer_.topk_experts));
    write("weights", View(v1::TENSOR_DTYPE_FLOAT32, {all, s.topk}, layer_.route_weights));
  }

  static v1::Program LayerProgram(int32_t iterations, uint64_t version = kVersion) {
    v1::Program program;
    program.set_iterations(iterations);
    auto* dispatch = program.add_operations()->mutable_dispatch();
    dispatch->set_hidden("hidden");
    dispatch->set_topk_experts("routes");
    dispatch->set_route_weights("weights");
    dispatch->set_plan("plan");
    auto* prefetch = program.add_operations()->mutable_prefetch_weights();
    prefetch->set_plan("plan");
    prefetch->set_weights_version(version);
    auto* experts = program.add_operations()->mutable_run_experts();
    experts->set_plan("plan");
    experts->set_weights_version(version);
    experts->set_apply_route_weights(true);
    auto* combine = program.add_operations()->mutable_combine();
    combine->set_plan("plan");
    combine->set_output("output");
    return program;
  }

  absl::Status Execute(const v1::Program& program) {
    return client_->ExecuteProgram(
        buffer_, Generation(group_.generation()), program,
        [this](const v1::ExecuteProgramResponse& message) { monitor_.Update(message); });
  }

  // Largest difference of the first `tokens` output rows of a rank from the expectation; the rows
  // behind them must be zero.
  double LargestError(int rank, int tokens) {
    const auto output = tensors_->Read(RankId(rank), "output");
    EXPECT_TRUE(output.ok()) << output.status();
    if (!output.ok()) return 1e30;
    const int32_t hidden = layer_.sizes.hidden;
    EXPECT_EQ(output->shape, (std::vector<int64_t>{layer_.sizes.tokens, hidden}));
    double largest = 0;
    for (int32_t i = 0; i < layer_.sizes.tokens * hidden; ++i) {
      BFloat16 value;
      std::memcpy(&value, output->data.data() + i * sizeof(value), sizeof(value));
      const double expected =
          i < tokens * hidden ? layer_.expected[rank * layer_.sizes.tokens * hidden + i] : 0.0;
      largest = std::max(largest, std::abs(ToFloat(value) - expected));
    }
    return largest;
  }

  LayerFile layer_;
  std::stop_source stop_;
  std::unique_ptr<Client> client_;
  v1::Group group_;
  std::string buffer_;
  std::unique_ptr<RankTensors> tensors_;
  ProgramMonitor monitor_{kRanks};
};

TEST_F(ServiceTest, RanksMayHaveFewerTokensOrNone) {
  for (const std::vector<int>& counts :
       std::vector<std::vector<int>>{{6, 6}, {3, 0}, {0, 5}, {0, 0}}) {
    Load(counts);
    const absl::Status status = Execute(LayerProgram(2));
    ASSERT_TRUE(status.ok()) << status;
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_LT(LargestError(rank, counts[rank]), 0.05) << "rank " << rank;
      EXPECT_EQ(monitor_.plans()[rank].token_count(), counts[rank]);
    }
  }
}

TEST_F(ServiceTest, WhatIsThereCanBeAskedFor) {
  Load({6, 6});
  ASSERT_TRUE(Execute(LayerProgram(1)).ok());
  const auto ask = [&](const std::string& kind, const std::string& name) {
    const Result result = RunPerigee({"get", kind, name, "--json", "--address", address_});
    EXPECT_EQ(result.status, 0) << result.err;
    return ParseJson(result.out).fields();
  };
  EXPECT_EQ(ask("group", "g").at("state").string_value(), "ACTIVE");
  EXPECT_EQ(ask("group", "g").at("members").list_value().values_size(), kRanks);
  EXPECT_EQ(ask("buffer", "g/b").at("tokens").number_value(), 6);
  EXPECT_EQ(ask("buffer", "g/b").at("rank_bytes").list_value().values_size(), kRanks);
  EXPECT_EQ(ask("worker", "w0").at("group").string_value(), "tenants/default/groups/g");
  const std::string generation = absl::StrCat("g/", group_.generation());
  EXPECT_EQ(ask("generation", generation).at("state").string_value(), "ACTIVE");
  for (const char* kind : {"groups", "buffers", "workers"}) {
    const Result described = RunPerigee({"describe", kind, "--address", address_});
    EXPECT_EQ(described.status, 0) << described.err;
    EXPECT_THAT(described.out, HasSubstr("name:"));
  }
  EXPECT_EQ(RunPerigee({"list", "generations", "g", "--address", address_}).status, 0);
}

// As of the workers' heartbeats, which come a few times a second.
TEST_F(ServiceTest, RanksAreAmongTheMetrics) {
  const std::string wanted =
      "perigee_transport_info{group=\"tenants/default/groups/g\",rank=\"1\",worker=\"workers/w1\","
      "transport=\"local\",generation=\"";
  const absl::Time deadline = absl::Now() + kStepTimeout;
  Result result;
  do {
    result = RunPerigee({"metrics", "--address", address_});
    ASSERT_EQ(result.status, 0) << result.err;
  } while (result.out.find(wanted) == std::string::npos && absl::Now() < deadline);
  EXPECT_THAT(result.out, HasSubstr(wanted));
  EXPECT_THAT(result.out, HasSubstr("# TYPE perigee_link_bytes_total counter\n"));
  EXPECT_EQ(RunPerigee({"metrics"}, {"PERIGEE_ADDRESS="}).status, 2);
}

TEST_F(ServiceTest, ABadRouteIsNamedByEveryRankAndTheGenerationLives) {
  layer_.topk_experts[1 * layer_.sizes.tokens * 2 + 5] = 44;  // rank 1, token 2, k 1
  Load({6, 6});
  const absl::Status status = Execute(LayerProgram(1));
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  const auto error = GroupErrorOf(status);
  ASSERT_TRUE(error.has_value()) << status;
  ASSERT_EQ(error->ranks_size(), kRanks);
  for (const v1::RankStatus& rank : error->ranks()) {
    EXPECT_EQ(rank.reason(), "BAD_ROUTE") << rank.message();
    EXPECT_THAT(rank.message(), HasSubstr("44"));
  }
  layer_.topk_experts[1 * layer_.sizes.tokens * 2 + 5] = 0;
  layer_.ComputeExpected();
  Load({6, 6});
  EXPECT_TRUE(Execute(LayerProgram(1)).ok());
  EXPECT_LT(LargestError(1, 6), 0.05);
}

TEST_F(ServiceTest, ARankWithoutItsInputStopsAllTogether) {
  Load({6, 6});
  v1::Program program = LayerProgram(1);
  const TensorView hidden = View(v1::TENSOR_DTYPE_BFLOAT16, {12, 16}, layer_.hidden);
  ASSERT_TRUE(tensors_->Write(RankId(0), "other", Slice(hidden, 0, 6)).ok());
  program.mutable_operations(0)->mutable_dispatch()->set_hidden("other");
  const absl::Status status = Execute(program);
  EXPECT_FALSE(status.ok());
  const auto error = GroupErrorOf(status);
  ASSERT_TRUE(error.has_value()) << status;
  EXPECT_THAT(error->ranks(1).message(), HasSubstr("other"));
  EXPECT_EQ(error->ranks(0).reason(), "DECLINED") << error->ranks(0).message();
  EXPECT_TRUE(Execute(LayerProgram(1)).ok()) << "the generation lives";
}

TEST_F(ServiceTest, WeightsOfAnotherVersionAreNotUsed) {
  Load({6, 6});
  const absl::Status status = Execute(LayerProgram(1, kVersion + 1));
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("version"));
}

TEST_F(ServiceTest, TensorsThatDoNotFitAreRefused) {
  Load({6, 6});
  const auto refused = [&](const char* what, const TensorView& tensor) {
    const absl::Status status = tensors_->Write(RankId(0), "x", tensor);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << what << ": " << status;
  };
  refused("too many tokens", View(v1::TENSOR_DTYPE_BFLOAT16, {12, 16}, layer_.hidden));
  const std::vector<BFloat16> odd(6 * 15);
  refused("another width", View(v1::TENSOR_DTYPE_BFLOAT16, {6, 15}, odd));
  v1::Group other = group_;
  other.set_generation(group_.generation() + 7);
  RankTensors late(other, buffer_, {});
  const absl::Status status = late.Write(
      RankId(0), "hidden", Slice(View(v1::TENSOR_DTYPE_BFLOAT16, {12, 16}, layer_.hidden), 0, 6));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(group_.generation() + 7)));
}

TEST_F(ServiceTest, PlansCanBeRead) {
  Load({6, 6});
  ASSERT_TRUE(Execute(LayerProgram(1)).ok());
  const auto load = tensors_->ReadPlan(RankId(0), "plan", "load");
  ASSERT_TRUE(load.ok()) << load.status();
  EXPECT_EQ(load->dtype, v1::TENSOR_DTYPE_INT32);
  int32_t loads[kRanks];
  ASSERT_EQ(load->data.size(), sizeof(loads));
  std::memcpy(loads, load->data.data(), sizeof(loads));
  EXPECT_LE(std::abs(loads[0] - loads[1]), 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(tensors_->ReadPlan(RankId(0), "none", "load").status()));
}

TEST_F(ServiceTest, ExpertsMustDivideByRanks) {
  BufferOptions options = Shape();
  options.shape.set_experts(5);
  const auto buffer = client_->CreateBuffer(group_.name(), options);
  EXPECT_TRUE(absl::IsInvalidArgument(buffer.status())) << buffer.status();
  EXPECT_THAT(std::string(buffer.status().message()), HasSubstr("5"));
}

TEST_F(ServiceTest, GroupsNeedEnoughWorkers) {
  const auto group = client_->CreateGroup({.group_id = "more", .ranks = 5});
  EXPECT_TRUE(absl::IsResourceExhausted(group.status())) << group.status();
}

TEST_F(ServiceTest, ACancelledProgramLeavesTheGroupUsable) {
  Load({6, 6});
  const absl::Status status =
      client_->ExecuteProgram(buffer_, Generation(group_.generation()), LayerProgram(1000000),
                              [this](const v1::ExecuteProgramResponse&) { stop_.request_stop(); });
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  const auto client = Client::Connect({.address = address_});
  ASSERT_TRUE(client.ok());
  const absl::Status next =
      (*client)->ExecuteProgram(buffer_, Generation(group_.generation()), LayerProgram(1),
                                [](const v1::ExecuteProgramResponse&) {});
  EXPECT_TRUE(next.ok()) << next;
  EXPECT_TRUE((*client)->DeleteGroup(group_.name()).ok());
  EXPECT_TRUE(absl::IsNotFound((*client)->DeleteGroup(group_.name())));
}

TEST_F(ServiceTest, AWorkerOfAnotherDataPathIsRefused) {
  const auto topology = v1::TopologyService::NewStub(NewChannel(address_));
  v1::RegisterWorkerRequest request;
  v1::Worker& worker = *request.mutable_worker();
  worker.set_name("workers/stranger");
  worker.set_incarnation("0123456789abcdef");
  worker.set_host("hosts/h");
  worker.set_backend("host");
  worker.set_address("127.0.0.1:9");
  worker.set_socket_path("/tmp/none.sock");
  worker.set_data_path_abi(kDataPathAbi + 41);
  v1::RegisterWorkerResponse response;
  GrpcCall call({}, absl::Seconds(30));
  const absl::Status status =
      FromGrpc(topology->RegisterWorker(call.context(), request, &response));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(kDataPathAbi + 41)));
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(kDataPathAbi)));
  EXPECT_TRUE(absl::IsNotFound(client_->GetWorker("workers/stranger").status()));
}

}  // namespace
}  // namespace perigee
