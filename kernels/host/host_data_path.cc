#include "kernels/host/host_data_path.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/shared_words.h"
#include "kernels/direct_publication.h"
#include "kernels/host/collective.h"
#include "kernels/host/combine.h"
#include "kernels/host/dispatch.h"
#include "kernels/host/host_rank.h"
#include "kernels/host/memfd_memory.h"
#include "kernels/host/owner_source.h"
#include "kernels/host/prefetch.h"
#include "kernels/host/produce.h"
#include "kernels/host/publish.h"
#include "kernels/host/reduce_gradients.h"
#include "kernels/host/run_experts.h"
#include "kernels/owner_source.h"
#include "kernels/rank/argument_checks.h"
#include "kernels/rank/path_rings.h"
#include "kernels/rank/plan_output.h"
#include "kernels/row_producer.h"

namespace perigee {
namespace {

std::unique_ptr<Collective> MakeCollective(const HostRank& rank, const DataPathOptions& options,
                                           const HostBackendOptions& backend) {
  CollectiveOptions collective;
  collective.rank = options.rank;
  collective.buffer = options.buffer;
  collective.generation = options.generation;
  collective.shards = rank.shards;
  collective.operation_timeout = options.operation_timeout;
  collective.warmup_timeout = options.warmup_timeout;
  collective.clock = backend.clock;
  collective.wait_slice = backend.wait_slice;
  collective.spin = backend.spin;
  return std::make_unique<Collective>(std::move(collective));
}

// Operations have ended when their calls return: a slot is free when it is released.
class HostRingSide final : public RingSide {
 public:
  // expert_memory: of the expert-output slots, null where there are none.
  HostRingSide(HostRank& rank, std::unique_ptr<Memory> expert_memory)
      : rank_(rank), words_(rank.slot_shards.size(), 1), expert_memory_(std::move(expert_memory)) {}

  void UseSlot(int32_t slot) override {
    rank_.UseSlot(slot);
    if (slot < 0) return rank_.collective->UseCredit({});
    rank_.collective->UseCredit({static_cast<uint32_t>(slot) + 1, WordOf(slot)});
  }
  absl::Status FreeInOrder(int32_t slot) override {
    ReleaseWord(WordOf(slot)).Pass();
    return absl::OkStatus();
  }
  absl::Status FreeOnStream(int32_t, CUstream_st*) override {
    return absl::UnimplementedError("backend host has no streams, expected backend cuda");
  }
  uint64_t* WordOf(int32_t slot) const override { return &words_[slot]; }
  BFloat16* ExpertRows(int32_t slot) const override {
    return reinterpret_cast<BFloat16*>(expert_memory_->data() +
                                       slot * rank_.row_bytes(rank_.logical_rows()));
  }
  void ForgetError() override { rank_.collective->ForgetError(); }
  uint32_t last_place() const override { return 0; }

 private:
  HostRank& rank_;
  mutable std::vector<uint64_t> words_;
  const std::unique_ptr<Memory> expert_memory_;
};

class HostDataPath final : public DataPath,
                           public DirectPublication,
                           public OwnerSource,
                           public RowProducer {
 public:
  HostDataPath(HostRank rank, const RingOptions& rings, std::unique_ptr<Memory> expert_memory)
      : rank_(std::move(rank)),
        ring_side_(rank_, std::move(expert_memory)),
        rings_(rings, *this, rank_, ring_side_) {}
  ~HostDataPath() override { rank_.source.Set(Sequence()); }

  absl::StatusOr<PlanPtr> Dispatch(Sequence sequence, const DispatchInput& input,
                                   const DispatchOutput& output) override {
    absl::StatusOr<PlanPtr> plan = HostDispatch(rank_, sequence, input, output);
    return plan.ok() ? WithPlanOut(sequence, *std::move(plan), output) : plan;
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
  absl::Status ReduceGradients(Sequence sequence, const PlanPtr& plan,
                               const ExpertGradients& gradients) override {
    return HostReduceGradients(rank_, sequence, plan, gradients);
  }
  absl::Status Barrier(Sequence sequence) override {
    absl::Status status = rank_.collective->Begin(sequence, Operation::kBarrier);
    if (!status.ok()) return status;
    // Nothing lies between entry and exit, so the entry alone is the whole barrier. Orders: all
    // that any rank did before it, before all that any rank does after it.
    return rank_.collective->Enter(rank_.Descriptor(Operation::kBarrier), 0);
  }
  absl::Status ProbeCopy(CopyProbe probe, int64_t rows) override {
    absl::Status status = rank_.collective->BeginLocal(Operation::kProbeCopy);
    if (status.ok()) status = CheckProbedRows(rank_, rows);
    if (!status.ok() || rows == 0) return status;
    const int64_t half = rank_.logical_rows() / 2;
    const int32_t next = (rank_.rank.value + 1) % rank_.geometry.ranks;
    const ShardView& to = probe == CopyProbe::kOwnShard ? rank_.own() : rank_.shards[next];
    std::memcpy(to.rows + half * rank_.hidden, rank_.own().rows, rank_.row_bytes(rows));
    rank_.live = LiveRows();
    return absl::OkStatus();
  }
  absl::StatusOr<TargetPtr> PrepareDispatch(Sequence sequence, const TargetInput& input) override {
    return HostPrepareDispatch(rank_, sequence, input);
  }
  absl::Status PreparePublication(const TargetPtr& target, const float* route_weights) override {
    return HostPreparePublication(rank_, target, route_weights);
  }
  absl::Status StoreRows(const TargetPtr& target, const BFloat16* hidden) override {
    return HostStoreRows(rank_, target, hidden);
  }
  absl::StatusOr<PlanPtr> Publish(Sequence sequence, const TargetPtr& target,
                                  const DispatchOutput& output) override {
    absl::StatusOr<PlanPtr> plan = HostPublish(rank_, sequence, target, output);
    return plan.ok() ? WithPlanOut(sequence, *std::move(plan), output) : plan;
  }
  void DropTarget() override {
    if (rank_.live.target != Sequence()) rank_.live = LiveRows();
  }
  DirectPublication* publication() override { return this; }
  absl::StatusOr<SourcePtr> PrepareSource(Sequence sequence, const SourceInput& input) override {
    return HostPrepareSource(rank_, sequence, input);
  }
  absl::StatusOr<PlanPtr> Materialise(Sequence sequence, const SourcePtr& source,
                                      const DispatchOutput& output) override {
    absl::StatusOr<PlanPtr> plan = HostMaterialise(rank_, sequence, source, output);
    return plan.ok() ? WithPlanOut(sequence, *std::move(plan), output) : plan;
  }
  BFloat16* source_hidden() const override { return rank_.sources[rank_.rank.value].hidden; }
  float* source_route_weights() const override {
    return rank_.sources[rank_.rank.value].route_weights;
  }
  OwnerSource* source() override { return rank_.sources.empty() ? nullptr : this; }
  absl::Status Produce(const ProductInput& input, BFloat16* output) override {
    return HostProduce(rank_, input, output);
  }
  absl::Status ProduceInto(const ProductInput& input, const TargetPtr& target) override {
    return HostProduceInto(rank_, input, target);
  }
  RowProducer* producer() override { return this; }
  BufferRings* rings() override { return &rings_; }
  absl::Status Decline(Sequence sequence) override { return rank_.collective->Decline(sequence); }

  // Every operation has ended when its call returns.
  absl::Status Synchronize() override { return absl::OkStatus(); }

  void Abort(int32_t lost_rank, const std::string& reason) override {
    rank_.collective->Abort(lost_rank, reason);
  }
  void RequestCancel(bool wanted) override { rank_.collective->RequestCancel(wanted); }
  absl::optional<ErrorRecord> last_error() const override { return rank_.collective->last_error(); }

  absl::StatusOr<PlanTensors> ReadPlan(const PlanPtr& plan) const override {
    const absl::StatusOr<std::shared_ptr<const HostPlan>> host_plan = HostPlanOf(rank_, plan);
    if (!host_plan.ok()) return host_plan.status();
    return (*host_plan)->Tensors();
  }
  BFloat16* rows() const override { return rank_.own().rows; }
  float* row_weights() const override { return rank_.own().row_weights; }

 private:
  // Also where the caller wants to read it.
  absl::StatusOr<PlanPtr> WithPlanOut(Sequence sequence, PlanPtr plan,
                                      const DispatchOutput& output) const {
    if (output.plan.sequence == nullptr) return plan;
    const absl::StatusOr<PlanTensors> tensors = ReadPlan(plan);
    if (!tensors.ok()) return tensors.status();
    WritePlan(*tensors, sequence, output.plan);
    return plan;
  }

  HostRank rank_;
  HostRingSide ring_side_;
  PathRings rings_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataPath>> CreateHostDataPath(const DataPathOptions& options,
                                                             const HostBackendOptions& backend) {
  if (options.transport != Transport::kNvlink) {
    return absl::InvalidArgumentError("backend host has no transport nccl, expected backend cuda");
  }
  absl::Status status = CheckDataPathOptions(options, kHostGranularityBytes);
  if (!status.ok()) return status;
  HostRank rank{MakeRankShape(options), nullptr, nullptr};
  const PeerWords words = LoadShared(rank.own().control->peers[rank.rank.value]);
  if (status = CheckFreshShard(rank, words.arrival); !status.ok()) return status;
  rank.pool = std::make_unique<ThreadPool>(options.threads);
  rank.collective = MakeCollective(rank, options, backend);
  std::unique_ptr<Memory> expert_memory;
  const size_t expert_bytes = options.rings.expert_slots * rank.row_bytes(rank.logical_rows());
  if (expert_bytes > 0) {
    auto memory = AllocateAnonymous(expert_bytes);
    if (!memory.ok()) return memory.status();
    expert_memory = *std::move(memory);
  }
  return std::make_unique<HostDataPath>(std::move(rank), options.rings, std::move(expert_memory));
}

}  // namespace perigee
