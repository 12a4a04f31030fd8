// What the way of a local client takes in a running cluster: an empty command there and back, a
// barrier of all ranks, and a layer step, beside the same step as a program and by direct calls of
// the same kernels in this process. Microseconds.
//
//   perigee up --ranks R [--backend cuda]
//   bazel run //tests/bench:local_client_bench -- ADDRESS R [ROUNDS] [--backend=cuda]
//       [--tokens=S] [--hidden=H] [--topk=K] [--experts=E] [--intermediate=H']
//
// A step is dispatch, prefetch_weights, run_experts and combine: four commands on their way at
// once, and a wait for the last. What it takes outside of the kernels is the difference between it
// and the direct calls; and, within one run, between it and what the worker says of its commands.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "client/lib/client.h"
#include "client/lib/local_client.h"
#include "client/lib/rank_tensors.h"
#include "kernels/backend_registry.h"
#include "kernels/common/check.h"
#include "tests/bench/bench_table.h"
#include "tests/bench/direct_step.h"

namespace perigee {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr LocalPlanId kPlan(1);
constexpr uint64_t kVersion = 1;
constexpr int kWarmRounds = 3;

LocalCompletion Done(LocalClient& client, const LocalOperation& operation) {
  absl::StatusOr<LocalCompletion> done = client.Run(operation, kLong);
  if (!done.ok() || !done->status.ok()) {
    std::fprintf(stderr, "%s\n", (done.ok() ? done->status : done.status()).ToString().c_str());
    std::exit(1);
  }
  return *std::move(done);
}

struct Wanted {
  std::string address;
  std::string backend = "host";
  int rounds = 10000;
  StepShape shape;
};

class Bench {
 public:
  explicit Bench(const Wanted& wanted)
      : wanted_(wanted), ranks_(wanted.shape.geometry.ranks), rounds_(wanted.rounds) {
    backend_ = Need(CreateBackend(wanted.backend));
    client_ = Need(Client::Connect({.address = wanted.address, .stop = stop_.get_token()}));
    group_ = Need(client_->CreateGroup({.ranks = ranks_, .backend = wanted.backend}));
    const Geometry& geometry = wanted.shape.geometry;
    shape_.set_tokens(geometry.tokens);
    shape_.set_hidden(wanted.shape.hidden);
    shape_.set_topk(geometry.topk);
    shape_.set_experts(geometry.experts);
    shape_.set_slots(geometry.slots);
    shape_.set_token_padding(geometry.token_padding);
    shape_.set_intermediate(wanted.shape.intermediate);
    shape_.set_layers(1);
    BufferOptions options;
    options.shape = shape_;
    buffer_ = Need(client_->CreateBuffer(group_.name(), options)).name();
    tensors_ = std::make_unique<RankTensors>(group_, buffer_, stop_.get_token());
    Load();
  }
  ~Bench() { (void)client_->DeleteGroup(group_.name()); }

  void Run() {
    RunProgram();
    for (int rank = 0; rank < ranks_; ++rank) {
      const v1::AttachTicket ticket =
          Need(client_->IssueAttachTicket(buffer_, Generation(group_.generation()), RankId(rank)));
      clients_.push_back(Need(LocalClient::Attach(ticket)));
      FillInputs(*clients_[rank]);
    }
    RunEmpty("empty command, client and worker awake", absl::ZeroDuration());
    RunEmpty("empty command, worker asleep", absl::Milliseconds(2));
    std::vector<std::thread> others;
    for (int rank = 1; rank < ranks_; ++rank) others.emplace_back([&, rank] { Steps(rank); });
    Steps(0);
    for (std::thread& other : others) other.join();
    PrintTimes("barrier of all ranks", barriers_);
    PrintTimes("layer step of a local client", steps_);
    PrintTimes("  of it outside of the worker's four operations", outside_);
    clients_.clear();
    const std::vector<absl::Duration> direct =
        Need(TimeDirectSteps(*backend_, wanted_.shape, StepRounds()));
    PrintTimes("the same step by direct calls in this process", direct);
    std::printf("%-52s %9.2f\n", "local client over direct calls, difference of p50",
                absl::ToDoubleMicroseconds(Median(steps_) - Median(direct)));
  }

 private:
  template <typename Value>
  static Value Need(absl::StatusOr<Value> value) {
    if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    if (!value.ok()) std::exit(1);
    return *std::move(value);
  }
  int32_t Expert(size_t i) const { return StepExpert(wanted_.shape, static_cast<int64_t>(i)); }
  int StepRounds() const { return std::max(1, rounds_ / 10); }

  // Through the backend: the addresses may be a device's.
  void FillInputs(const LocalClient& client) const {
    CopyIn(std::vector<BFloat16>(client.hidden().size(), ToBFloat16(1)), client.hidden().data());
    std::vector<int32_t> routes(client.topk_experts().size());
    for (size_t i = 0; i < routes.size(); ++i) routes[i] = Expert(i);
    CopyIn(routes, client.topk_experts().data());
  }
  template <typename T>
  void CopyIn(const std::vector<T>& values, T* to) const {
    const absl::Status status =
        backend_->CopyIn(reinterpret_cast<std::byte*>(to),
                         absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()),
                                             values.size() * sizeof(T)));
    if (!status.ok()) (void)Need(absl::StatusOr<int>(status));
  }

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
    PrintTimes("the same step as a program", times);
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
    PrintTimes(what, there_and_back);
    PrintTimes("  of it on the way, both ways", on_the_way);
  }

  void Steps(int rank) {
    LocalClient& client = *clients_[rank];
    for (int round = 0; round < rounds_; ++round) {
      const absl::Duration start = RealClock().Monotonic();
      Done(client, LocalBarrier());
      if (rank == 0) barriers_.push_back(RealClock().Monotonic() - start);
    }
    for (int round = -kWarmRounds; round < StepRounds(); ++round) {
      Done(client, LocalBarrier());
      const absl::Duration start = RealClock().Monotonic();
      const absl::Duration working = Step(client);
      const absl::Duration whole = RealClock().Monotonic() - start;
      if (rank != 0 || round < 0) continue;
      steps_.push_back(whole);
      outside_.push_back(whole - working);
    }
  }

  // How long the worker has worked at its operations.
  absl::Duration Step(LocalClient& client) const {
    std::vector<uint64_t> commands;
    for (const LocalOperation& operation : std::vector<LocalOperation>{
             LocalDispatch{kPlan, shape_.tokens(), false}, LocalPrefetchWeights{kPlan, 0, kVersion},
             LocalRunExperts{kPlan, 0, kVersion, false}, LocalCombine{kPlan, false}}) {
      commands.push_back(Need(client.Submit(operation)));
    }
    (void)Need(client.Wait(commands.back(), kLong));
    absl::Duration working;
    for (const uint64_t command : commands) {
      const LocalCompletion done = Need(client.Wait(command, kLong));
      if (!done.status.ok()) (void)Need(absl::StatusOr<int>(done.status));
      working += done.duration;
    }
    return working;
  }

  const Wanted wanted_;
  const int ranks_;
  const int rounds_;
  std::unique_ptr<Backend> backend_;
  std::stop_source stop_;
  std::unique_ptr<Client> client_;
  v1::Group group_;
  v1::BufferShape shape_;
  std::string buffer_;
  std::unique_ptr<RankTensors> tensors_;
  std::vector<std::unique_ptr<LocalClient>> clients_;
  std::vector<absl::Duration> barriers_, steps_, outside_;  // of rank 0
};

// False: wrong use.
bool Read(int argc, char** argv, Wanted& wanted) {
  std::map<std::string, int> sizes = {
      {"tokens", 64}, {"hidden", 256}, {"topk", 2}, {"experts", 0}, {"intermediate", 64}};
  std::vector<std::string> places;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (argument.rfind("--", 0) != 0) {
      places.push_back(argument);
    } else if (argument.rfind("--backend=", 0) == 0) {
      wanted.backend = argument.substr(equals + 1);
    } else {
      const auto size = sizes.find(argument.substr(2, equals - 2));
      if (equals == std::string::npos || size == sizes.end() ||
          !absl::SimpleAtoi(argument.substr(equals + 1), &size->second)) {
        return false;
      }
    }
  }
  int ranks = 0;
  if (places.size() < 2 || places.size() > 3 || !absl::SimpleAtoi(places[1], &ranks) || ranks < 1 ||
      (places.size() == 3 && (!absl::SimpleAtoi(places[2], &wanted.rounds) || wanted.rounds < 1))) {
    return false;
  }
  wanted.address = places[0];
  const int experts = sizes["experts"] > 0 ? sizes["experts"] : 4 * ranks;
  wanted.shape.geometry = {ranks, experts, sizes["tokens"], sizes["topk"], experts / ranks, 8};
  wanted.shape.hidden = sizes["hidden"];
  wanted.shape.intermediate = sizes["intermediate"];
  return true;
}

// Before CUDA is first used: in the direct calls ranks are streams of this process, and two that
// share a hardware queue wait for each other until they give up. One is for copies, one for the
// default stream. No more than needed: under MPS all processes share the device's.
void SeparateHardwareQueues(int ranks) {
  const int queues = std::clamp(ranks + 2, 8, 32);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(queues).c_str(), /*overwrite=*/0);
}

int Main(int argc, char** argv) {
  Wanted wanted;
  if (!Read(argc, argv, wanted)) {
    std::fprintf(stderr,
                 "usage: local_client_bench ADDRESS RANKS [ROUNDS] [--backend=host|cuda] "
                 "[--tokens=S] [--hidden=H] [--topk=K] [--experts=E] [--intermediate=H']\n");
    return 2;
  }
  SeparateHardwareQueues(wanted.shape.geometry.ranks);
  PrintCircumstances();
  const StepShape& shape = wanted.shape;
  std::printf("step     backend %s, R %d, S %d, H %d, K %d, E %d, H' %d; %d rounds\n",
              wanted.backend.c_str(), shape.geometry.ranks, shape.geometry.tokens, shape.hidden,
              shape.geometry.topk, shape.geometry.experts, shape.intermediate, wanted.rounds);
  PrintTimesHeader();
  Bench(wanted).Run();
  return 0;
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) { return perigee::Main(argc, argv); }
