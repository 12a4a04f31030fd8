#include "kernels/host/host_data_path.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/host/collective.h"
#include "kernels/host/combine.h"
#include "kernels/host/dispatch.h"
#include "kernels/host/host_rank.h"
#include "kernels/host/prefetch.h"
#include "kernels/host/run_experts.h"
#include "kernels/host/shared_words.h"
#include "kernels/plan/validate.h"

namespace perigee {
namespace {

static_assert(kControlPeers == kMaxRanks);

constexpr int kMaxThreads = 1024;

absl::Status CheckIdentity(const DataPathOptions& options) {
  const int32_t ranks = options.geometry.ranks;
  if (options.rank.value < 0 || options.rank.value >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank is ", options.rank.value, ", expected 0 to ", ranks - 1));
  }
  if (options.buffer.value == 0 || options.generation.value == 0) {
    return absl::InvalidArgumentError(absl::StrCat("buffer is ", options.buffer.value,
                                                   ", generation ", options.generation.value,
                                                   ", expected neither to be 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckShards(const DataPathOptions& options) {
  if (options.shards.size() != static_cast<size_t>(options.geometry.ranks)) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", options.shards.size(),
                                                   " shards, expected ", options.geometry.ranks));
  }
  for (size_t rank = 0; rank < options.shards.size(); ++rank) {
    const auto address = reinterpret_cast<uintptr_t>(options.shards[rank]);
    if (address != 0 && address % kHostGranularityBytes == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("shard of rank ", rank, " is null or not page aligned"));
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const DataPathOptions& options) {
  if (absl::Status status = ValidateGeometry(options.geometry); !status.ok()) return status;
  if (options.hidden <= 0 || options.hidden % 8 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("hidden size is ", options.hidden, ", expected a positive multiple of 8"));
  }
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", options.threads, ", expected 1 to ", kMaxThreads));
  }
  if (options.operation_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("operation timeout is ",
                                                   absl::FormatDuration(options.operation_timeout),
                                                   ", expected more than 0"));
  }
  if (absl::Status status = CheckIdentity(options); !status.ok()) return status;
  return CheckShards(options);
}

absl::Status CheckFresh(const HostRank& rank) {
  const PeerWords words = LoadShared(rank.own().control->peers[rank.rank.value]);
  if (words.arrival == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shard of rank ", rank.rank.value, " has been used up to sequence ",
                   PositionSequence(words.arrival), ", expected zeroed memory"));
}

std::unique_ptr<Collective> MakeCollective(const HostRank& rank, const DataPathOptions& options,
                                           const HostBackendOptions& backend) {
  CollectiveOptions collective;
  collective.rank = options.rank;
  collective.buffer = options.buffer;
  collective.generation = options.generation;
  collective.shards = rank.shards;
  collective.operation_timeout = options.operation_timeout;
  collective.clock = backend.clock;
  collective.wait_slice = backend.wait_slice;
  collective.spin = backend.spin;
  return std::make_unique<Collective>(std::move(collective));
}

HostRank MakeRank(const DataPathOptions& options) {
  HostRank rank;
  rank.geometry = options.geometry;
  rank.hidden = options.hidden;
  rank.rank = options.rank;
  rank.buffer = options.buffer;
  rank.generation = options.generation;
  rank.layout = ShardLayout::Create(options.geometry, options.hidden);
  for (std::byte* shard : options.shards) rank.shards.push_back(rank.layout.View(shard));
  return rank;
}

class HostDataPath final : public DataPath {
 public:
  explicit HostDataPath(HostRank rank) : rank_(std::move(rank)) {}

  absl::StatusOr<PlanPtr> Dispatch(Sequence sequence, const DispatchInput& input,
                                   const DispatchOutput& output) override {
    return HostDispatch(rank_, sequence, input, output);
  }
  absl::Status DispatchWithPlan(Sequence sequence, const PlanPtr& plan, const DispatchInput& input,
                                const DispatchOutput& output) override {
    return HostDispatchWithPlan(rank_, sequence, plan, input, output);
  }
  absl::Status PrefetchWeights(Sequence sequence, const PlanPtr& plan,
                               const ExpertWeights& weights) override {
    return HostPrefetchWeights(rank_, sequence, plan, weights);
  }
  absl::Status RunExperts(const PlanPtr& plan, const ExpertWeights& weights,
                          const RunExpertsInput& input) override {
    return HostRunExperts(rank_, plan, weights, input);
  }
  absl::Status Combine(Sequence sequence, const PlanPtr& plan, const CombineInput& input,
                       const CombineOutput& output) override {
    return HostCombine(rank_, sequence, plan, input, output);
  }
  absl::Status Barrier(Sequence sequence) override {
    absl::Status status = rank_.collective->Begin(sequence, Operation::kBarrier);
    if (!status.ok()) return status;
    // Nothing lies between entry and exit, so the entry alone is the whole barrier. Orders: all
    // that any rank did before it, before all that any rank does after it.
    return rank_.collective->Enter(rank_.Descriptor(Operation::kBarrier), 0);
  }
  absl::Status Decline(Sequence sequence) override { return rank_.collective->Decline(sequence); }

  // Every operation has ended when its call returns.
  absl::Status Synchronize() override { return absl::OkStatus(); }

  void Abort(int32_t lost_rank, const std::string& reason) override {
    rank_.collective->Abort(lost_rank, reason);
  }
  void RequestCancel(bool wanted) override { rank_.collective->RequestCancel(wanted); }
  absl::optional<ErrorRecord> last_error() const override { return rank_.collective->last_error(); }

  absl::StatusOr<PlanTensors> ReadPlan(const PlanPtr& plan) const override {
    const absl::StatusOr<std::shared_ptr<const HostPlan>> host_plan = rank_.PlanOf(plan);
    if (!host_plan.ok()) return host_plan.status();
    return (*host_plan)->Tensors();
  }
  BFloat16* rows() const override { return rank_.own().rows; }
  float* row_weights() const override { return rank_.own().row_weights; }

 private:
  HostRank rank_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataPath>> CreateHostDataPath(const DataPathOptions& options,
                                                             const HostBackendOptions& backend) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  HostRank rank = MakeRank(options);
  if (absl::Status status = CheckFresh(rank); !status.ok()) return status;
  rank.pool = std::make_unique<ThreadPool>(options.threads);
  rank.collective = MakeCollective(rank, options, backend);
  return std::make_unique<HostDataPath>(std::move(rank));
}

}  // namespace perigee
