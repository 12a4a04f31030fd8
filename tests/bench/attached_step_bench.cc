// A dispatch and a combine of S4096 H7168 K8 E256 on one rank: through the ring of a local client
// of a running worker, and by the same backend in this process. Microseconds, from the first call
// to the end of the last.
//
//   perigee up --ranks 1 --backend cuda
//   bazel run //tests/bench:attached_step_bench -- ADDRESS [ROUNDS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "client/lib/client.h"
#include "client/lib/local_client.h"
#include "kernels/backend_registry.h"
#include "kernels/common/check.h"
#include "kernels/device/copy.h"
#include "kernels/layout/shard_layout.h"

namespace perigee {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr Geometry kGeometry{
    .ranks = 1, .experts = 256, .tokens = 4096, .topk = 8, .slots = 0, .token_padding = 128};
constexpr int32_t kHidden = 7168;
constexpr LocalPlanId kPlan(1);

template <typename Value>
Value Need(absl::StatusOr<Value> value) {
  if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  if (!value.ok()) std::exit(1);
  return *std::move(value);
}
void Need(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// Every token to kGeometry.topk experts in a row.
std::vector<int32_t> Routes() {
  std::mt19937 random(1);
  std::vector<int32_t> routes(kGeometry.routes());
  for (size_t i = 0; i < routes.size(); i += kGeometry.topk) {
    const auto first = static_cast<int32_t>(random() % kGeometry.experts);
    for (int32_t k = 0; k < kGeometry.topk; ++k) routes[i + k] = (first + k) % kGeometry.experts;
  }
  return routes;
}

template <typename Step>
std::vector<absl::Duration> Time(int rounds, const Step& step) {
  for (int round = 0; round < 20; ++round) step();
  std::vector<absl::Duration> times;
  for (int round = 0; round < rounds; ++round) {
    const absl::Duration start = RealClock().Monotonic();
    step();
    times.push_back(RealClock().Monotonic() - start);
  }
  std::sort(times.begin(), times.end());
  return times;
}

double Print(const char* what, const std::vector<absl::Duration>& times) {
  const auto at = [&](double share) {
    return absl::ToDoubleMicroseconds(
        times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))]);
  };
  std::printf("%-44s %9.2f %9.2f %9.2f %9.2f\n", what, at(0.5), at(0.9), at(0.99), at(1));
  return at(0.5);
}

std::vector<absl::Duration> ThroughTheRing(const std::string& address, int rounds) {
  std::stop_source stop;
  const auto cluster = Need(Client::Connect({.address = address, .stop = stop.get_token()}));
  const v1::Group group = Need(cluster->CreateGroup({.ranks = 1, .backend = "cuda"}));
  BufferOptions options;
  options.shape.set_tokens(kGeometry.tokens);
  options.shape.set_hidden(kHidden);
  options.shape.set_topk(kGeometry.topk);
  options.shape.set_experts(kGeometry.experts);
  options.shape.set_slots(kGeometry.slots);
  options.shape.set_token_padding(kGeometry.token_padding);
  const std::string buffer = Need(cluster->CreateBuffer(group.name(), options)).name();
  std::vector<absl::Duration> times;
  {
    const auto client = Need(LocalClient::Attach(
        Need(cluster->IssueAttachTicket(buffer, Generation(group.generation()), RankId(0)))));
    const std::vector<int32_t> routes = Routes();
    Need(CopyToDevice(client->device()->index,
                      reinterpret_cast<std::byte*>(client->topk_experts().data()),
                      {reinterpret_cast<const std::byte*>(routes.data()), routes.size() * 4}));
    times = Time(rounds, [&] {
      Need(client->Submit(LocalDispatch{kPlan, kGeometry.tokens, false}));
      const uint64_t last = Need(client->Submit(LocalCombine{kPlan, false}));
      Need(Need(client->Wait(last, kLong)).status);
    });
  }
  Need(cluster->DeleteGroup(group.name()));
  return times;
}

std::vector<absl::Duration> InProcess(int rounds) {
  const auto backend = Need(CreateBackend("cuda"));
  const ShardLayout layout = ShardLayout::Create(kGeometry, kHidden);
  const auto shard = Need(backend->AllocateShared(layout.size_bytes, PeerAccess::kReadWrite));
  const size_t token_bytes = size_t{2} * kGeometry.tokens * kHidden;
  const auto hidden = Need(backend->AllocatePrivate(token_bytes));
  const auto output = Need(backend->AllocatePrivate(token_bytes));
  const std::vector<int32_t> routes = Routes();
  const auto device_routes = Need(backend->AllocatePrivate(routes.size() * 4));
  Need(backend->CopyIn(device_routes->data(),
                       {reinterpret_cast<const std::byte*>(routes.data()), routes.size() * 4}));
  DataPathOptions options;
  options.geometry = kGeometry;
  options.hidden = kHidden;
  options.rank = RankId(0);
  options.buffer = BufferId(1);
  options.generation = Generation(1);
  options.shards = {shard->data()};
  const auto path = Need(backend->CreateDataPath(options));
  DispatchInput input;
  input.hidden = reinterpret_cast<const BFloat16*>(hidden->data());
  input.topk_experts = reinterpret_cast<const int32_t*>(device_routes->data());
  input.token_count = kGeometry.tokens;
  CombineOutput combined;
  combined.hidden = reinterpret_cast<BFloat16*>(output->data());
  Sequence sequence;
  return Time(rounds, [&] {
    const PlanPtr plan = Need(path->Dispatch(sequence = sequence.Next(), input, {}));
    CombineInput rows;
    rows.rows = path->rows();
    Need(path->Combine(sequence = sequence.Next(), plan, rows, combined));
    Need(path->Synchronize());
  });
}

int Main(const std::string& address, int rounds) {
  std::printf("%d rounds\n%-44s %9s %9s %9s %9s\n", rounds, "", "p50", "p90", "p99", "max");
  const double attached = Print("through the ring", ThroughTheRing(address, rounds));
  const double here = Print("in this process", InProcess(rounds));
  std::printf("MEASURED through the ring %+.1f us\n", attached - here);
  return 0;
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 500;
  if (argc < 2 || rounds < 1) {
    std::fprintf(stderr, "usage: attached_step_bench ADDRESS [ROUNDS]\n");
    return 2;
  }
  return perigee::Main(argv[1], rounds);
}
