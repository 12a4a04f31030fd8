// A framework that is its own workers: R ranks in this process, each an embedded worker with a
// thread of its own, run one layer's dispatch and combine with experts of the framework's own.
//
//   perigee-coordinator --data_dir DIR --address HOST:PORT
//   bazel run //client/examples:embedded_layer -- HOST:PORT [RANKS]
//
// Each expert multiplies its rows by its number plus one, so that a token's sum can be told from
// its routes; prints how many sums were right.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/lib/client.h"
#include "client/lib/rank_client.h"
#include "kernels/host/host_backend.h"
#include "worker/embedded/embedded_worker.h"

namespace perigee {
namespace {

constexpr int32_t kTokens = 16, kHidden = 8, kTopk = 2, kExpertsPerRank = 2;
constexpr absl::Duration kTimeout = absl::Seconds(30);
constexpr LocalPlanId kPlan(1);

absl::Status Run(RankClient& client, const LocalOperation& operation) {
  const absl::StatusOr<LocalCompletion> done = client.Run(operation, kTimeout);
  return done.ok() ? done->status : done.status();
}

// Token t of a rank is all ones and goes to experts t and t + 1, counted around.
int32_t ExpertOf(const Geometry& geometry, int32_t token, int32_t k) {
  return (token + k) % geometry.experts;
}

// The rank's rows lie in groups, one per expert that it computes: its home experts, and in the
// slots the remote ones that the plan has given it.
void ComputeExperts(const RankClient& client) {
  const RankMemory memory = client.memory();
  const Geometry& geometry = client.geometry();
  const int32_t* const in_slots =
      memory.plan.experts_to_copy + client.rank().value * geometry.slots;
  for (int32_t group = 0, row = 0; group < geometry.groups(); ++group) {
    const int32_t expert = group < geometry.experts ? group : in_slots[group - geometry.experts];
    for (; row < memory.plan.cu_seqlens[group]; ++row) {
      for (int32_t h = 0; h < kHidden; ++h) {
        BFloat16& value = memory.rows[row * kHidden + h];
        value = ToBFloat16(ToFloat(value) * static_cast<float>(expert + 1));
      }
    }
  }
}

absl::StatusOr<int32_t> RunLayer(RankClient& client) {
  const RankMemory memory = client.memory();
  const Geometry& geometry = client.geometry();
  std::fill(memory.hidden.begin(), memory.hidden.end(), ToBFloat16(1));
  for (int32_t route = 0; route < geometry.routes(); ++route) {
    memory.topk_experts[route] = ExpertOf(geometry, route / kTopk, route % kTopk);
  }
  absl::Status status = Run(client, LocalDispatch{kPlan, kTokens, false});
  if (!status.ok()) return status;
  ComputeExperts(client);
  status = Run(client, LocalCombine{kPlan, false});
  if (!status.ok()) return status;
  int32_t right = 0;
  for (int32_t token = 0; token < kTokens; ++token) {
    float sum = 0;
    for (int32_t k = 0; k < kTopk; ++k) sum += static_cast<float>(ExpertOf(geometry, token, k) + 1);
    right += ToFloat(memory.output[token * kHidden]) == sum ? 1 : 0;
  }
  return right;
}

// One rank's life: a worker, and a client of it.
class Rank {
 public:
  absl::Status Start(const std::string& coordinator, int32_t rank) {
    rank_ = rank;
    WorkerOptions options;
    options.name = absl::StrCat("embedded", rank);
    options.coordinator = coordinator;
    options.backend = CreateHostBackend();
    absl::StatusOr<std::unique_ptr<EmbeddedWorker>> worker =
        EmbeddedWorker::Start(std::move(options));
    if (!worker.ok()) return worker.status();
    worker_ = *std::move(worker);
    return absl::OkStatus();
  }
  absl::Status Attach(Client& client, const std::string& buffer) {
    const absl::StatusOr<v1::AttachTicket> ticket =
        client.IssueAttachTicket(buffer, Generation(), RankId(rank_));
    if (!ticket.ok()) return ticket.status();
    absl::StatusOr<std::unique_ptr<RankClient>> attached = worker_->Attach(*ticket);
    if (!attached.ok()) return attached.status();
    client_ = *std::move(attached);
    return absl::OkStatus();
  }
  RankClient& client() { return *client_; }

 private:
  int32_t rank_ = 0;
  std::unique_ptr<EmbeddedWorker> worker_;
  std::unique_ptr<RankClient> client_;  // leaves before its worker does
};

absl::StatusOr<std::string> MakeBuffer(Client& client, int32_t ranks) {
  GroupOptions options;
  options.ranks = ranks;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    options.workers.push_back(absl::StrCat("workers/embedded", rank));
  }
  const absl::StatusOr<v1::Group> group = client.CreateGroup(options);
  if (!group.ok()) return group.status();
  BufferOptions buffer;
  buffer.shape.set_tokens(kTokens);
  buffer.shape.set_hidden(kHidden);
  buffer.shape.set_topk(kTopk);
  buffer.shape.set_experts(kExpertsPerRank * ranks);
  const absl::StatusOr<v1::Buffer> made = client.CreateBuffer(group->name(), buffer);
  if (!made.ok()) return made.status();
  return made->name();
}

absl::Status RunExample(const std::string& coordinator, int32_t ranks) {
  std::vector<Rank> processes(ranks);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    if (absl::Status status = processes[rank].Start(coordinator, rank); !status.ok()) return status;
  }
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect({.address = coordinator});
  if (!client.ok()) return client.status();
  const absl::StatusOr<std::string> buffer = MakeBuffer(**client, ranks);
  if (!buffer.ok()) return buffer.status();
  for (Rank& rank : processes) {
    if (absl::Status status = rank.Attach(**client, *buffer); !status.ok()) return status;
  }
  std::vector<absl::StatusOr<int32_t>> right(ranks, 0);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { right[rank] = RunLayer(processes[rank].client()); });
  }
  for (std::thread& thread : threads) thread.join();
  int32_t sums = 0;
  for (const absl::StatusOr<int32_t>& of_rank : right) {
    if (!of_rank.ok()) return of_rank.status();
    sums += *of_rank;
  }
  std::printf("%d of %d sums right on %d ranks\n", sums, ranks * kTokens, ranks);
  return sums == ranks * kTokens ? absl::OkStatus() : absl::InternalError("wrong sums");
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 2;
  if (argc < 2 || ranks < 1) {
    std::fprintf(stderr, "usage: embedded_layer HOST:PORT [RANKS]\n");
    return 2;
  }
  const absl::Status status = perigee::RunExample(argv[1], ranks);
  if (!status.ok()) std::fprintf(stderr, "embedded_layer: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
