// What the way of a local client takes in a running cluster: an empty command there and back, a
// barrier of all ranks, and a small layer step, beside the same step as a program. Microseconds.
//
//   perigee up --ranks R
//   bazel run //tests/bench:local_client_bench -- ADDRESS R [ROUNDS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/lib/client.h"
#include "client/lib/local_client.h"
#include "client/lib/rank_tensors.h"
#include "kernels/common/check.h"

namespace perigee {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr LocalPlanId kPlan(1);
constexpr uint64_t kVersion = 1;

void Print(const char* what, std::vector<absl::Duration> times) {
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return absl::ToDoubleMicroseconds(
        times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))]);
  };
  std::printf("%-44s %9.2f %9.2f %9.2f %9.2f\n", what, at(0.5), at(0.9), at(0.99), at(1));
}

LocalCompletion Done(LocalClient& client, const LocalOperation& operation) {
  absl::StatusOr<LocalCompletion> done = client.Run(operation, kLong);
  if (!done.ok() || !done->status.ok()) {
    std::fprintf(stderr, "%s\n", (done.ok() ? done->status : done.status()).ToString().c_str());
    std::exit(1);
  }
  return *std::move(done);
}

class Bench {
 public:
  Bench(const std::string& address, int ranks, int rounds) : ranks_(ranks), rounds_(rounds) {
    client_ = Need(Client::Connect({.address = address, .stop = stop_.get_token()}));
    group_ = Need(client_->CreateGroup({.ranks = ranks}));
    shape_.set_tokens(64);
    shape_.set_hidden(256);
    shape_.set_topk(2);
    shape_.set_experts(4 * ranks);
    shape_.set_token_padding(8);
    shape_.set_intermediate(64);
    shape_.set_layers(1);
    BufferOptions options;
    options.shape = shape_;
    buffer_ = Need(client_->CreateBuffer(group_.name(), options)).name();
    tensors_ = std::make_unique<RankTensors>(group_, buffer_, stop_.get_token());
    Load();
  }
  ~Bench() { (void)client_->DeleteGroup(group_.name()); }

  void Run() {
    std::printf("%d ranks, %d rounds\n%-44s %9s %9s %9s %9s\n", ranks_, rounds_, "", "p50", "p90",
                "p99", "max");
    RunProgram();
    for (int rank = 0; rank < ranks_; ++rank) {
      const v1::AttachTicket ticket =
          Need(client_->IssueAttachTicket(buffer_, Generation(group_.generation()), RankId(rank)));
      clients_.push_back(Need(LocalClient::Attach(ticket)));
      std::fill(clients_[rank]->hidden().begin(), clients_[rank]->hidden().end(), ToBFloat16(1));
      for (size_t i = 0; i < clients_[rank]->topk_experts().size(); ++i) {
        clients_[rank]->topk_experts()[i] = Expert(i);
      }
    }
    RunEmpty("empty command, client and worker awake", absl::ZeroDuration());
    RunEmpty("empty command, worker asleep", absl::Milliseconds(2));
    std::vector<std::thread> others;
    for (int rank = 1; rank < ranks_; ++rank) others.emplace_back([&, rank] { Steps(rank); });
    Steps(0);
    for (std::thread& other : others) other.join();
    Print("barrier of all ranks", barriers_);
    Print("layer step of a local client", steps_);
    clients_.clear();
  }

 private:
  template <typename Value>
  static Value Need(absl::StatusOr<Value> value) {
    if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    if (!value.ok()) std::exit(1);
    return *std::move(value);
  }
  int32_t Expert(size_t i) const { return static_cast<int32_t>(i) % shape_.experts(); }

  void Load() {
    const int64_t weights = int64_t{shape_.experts()} * shape_.hidden() * shape_.intermediate();
    const std::vector<BFloat16> zeros(weights), hidden(shape_.tokens() * shape_.hidden());
    std::vector<int32_t> routes(shape_.tokens() * shape_.topk());
    for (size_t i = 0; i < routes.size(); ++i) routes[i] = Expert(i);
    const auto view = [](v1::TensorDtype dtype, std::vector<int64_t> shape, const auto& data) {
      return TensorView{
          dtype,
          std::move(shape),
          {reinterpret_cast<const std::byte*>(data.data()), data.size() * sizeof(data[0])}};
    };
    const auto bf16 = v1::TENSOR_DTYPE_BFLOAT16;
    const int64_t e = shape_.experts(), h = shape_.hidden(), i = shape_.intermediate();
    PERIGEE_CHECK(tensors_
                      ->LoadLayer(0, kVersion,
                                  {view(bf16, {e, h, i}, zeros), view(bf16, {e, h, i}, zeros),
                                   view(bf16, {e, i, h}, zeros)})
                      .ok());
    for (int rank = 0; rank < ranks_; ++rank) {
      const RankId to(rank);
      PERIGEE_CHECK(tensors_->Write(to, "x", view(bf16, {shape_.tokens(), h}, hidden)).ok());
      PERIGEE_CHECK(
          tensors_
              ->Write(to, "t",
                      view(v1::TENSOR_DTYPE_INT32, {shape_.tokens(), shape_.topk()}, routes))
              .ok());
    }
  }

  void RunProgram() {
    v1::Program program;
    v1::DispatchOperation& dispatch = *program.add_operations()->mutable_dispatch();
    dispatch.set_hidden("x");
    dispatch.set_topk_experts("t");
    dispatch.set_plan("p");
    v1::PrefetchWeightsOperation& prefetch = *program.add_operations()->mutable_prefetch_weights();
    prefetch.set_plan("p");
    prefetch.set_weights_version(kVersion);
    v1::RunExpertsOperation& experts = *program.add_operations()->mutable_run_experts();
    experts.set_plan("p");
    experts.set_weights_version(kVersion);
    v1::CombineOperation& combine = *program.add_operations()->mutable_combine();
    combine.set_plan("p");
    combine.set_output("y");
    std::vector<absl::Duration> times;
    for (int round = 0; round < std::max(1, rounds_ / 100); ++round) {
      const absl::Duration start = RealClock().Monotonic();
      PERIGEE_CHECK(client_
                        ->ExecuteProgram(buffer_, Generation(), program,
                                         [](const v1::ExecuteProgramResponse&) {})
                        .ok());
      times.push_back(RealClock().Monotonic() - start);
    }
    Print("the same step as a program", times);
  }

  void RunEmpty(const char* what, absl::Duration pause) {
    std::vector<absl::Duration> there_and_back, on_the_way;
    const int rounds = pause > absl::ZeroDuration() ? std::max(1, rounds_ / 10) : rounds_;
    for (int round = 0; round < rounds; ++round) {
      if (pause > absl::ZeroDuration()) absl::SleepFor(pause);
      const absl::Duration start = RealClock().Monotonic();
      const LocalCompletion done = Done(*clients_[0], LocalEmpty());
      there_and_back.push_back(RealClock().Monotonic() - start);
      on_the_way.push_back(there_and_back.back() - done.duration);
    }
    Print(what, there_and_back);
    Print("  of it on the way, both ways", on_the_way);
  }

  void Steps(int rank) {
    LocalClient& client = *clients_[rank];
    for (int round = 0; round < rounds_; ++round) {
      const absl::Duration start = RealClock().Monotonic();
      Done(client, LocalBarrier());
      if (rank == 0) barriers_.push_back(RealClock().Monotonic() - start);
    }
    for (int round = 0; round < std::max(1, rounds_ / 10); ++round) {
      const absl::Duration start = RealClock().Monotonic();
      Done(client, LocalDispatch{kPlan, shape_.tokens(), false});
      Done(client, LocalPrefetchWeights{kPlan, 0, kVersion});
      Done(client, LocalRunExperts{kPlan, 0, kVersion, false});
      Done(client, LocalCombine{kPlan, false});
      if (rank == 0) steps_.push_back(RealClock().Monotonic() - start);
    }
  }

  const int ranks_;
  const int rounds_;
  std::stop_source stop_;
  std::unique_ptr<Client> client_;
  v1::Group group_;
  v1::BufferShape shape_;
  std::string buffer_;
  std::unique_ptr<RankTensors> tensors_;
  std::vector<std::unique_ptr<LocalClient>> clients_;
  std::vector<absl::Duration> barriers_, steps_;  // of rank 0
};

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 0;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 10000;
  if (ranks < 1 || rounds < 1) {
    std::fprintf(stderr, "usage: local_client_bench ADDRESS RANKS [ROUNDS]\n");
    return 2;
  }
  perigee::Bench(argv[1], ranks, rounds).Run();
  return 0;
}
