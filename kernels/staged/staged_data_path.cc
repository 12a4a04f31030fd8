#include "kernels/staged/staged_data_path.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/layout/walk.h"
#include "kernels/link_traffic.h"
#include "kernels/staged/staged_rank.h"

namespace perigee {
namespace {

absl::Status AllocateArea(StagedRank& rank) {
  const Geometry& geometry = rank.shape().geometry;
  const int64_t elements = MostStagedRows(geometry) * rank.shape().hidden;
  LayoutWalk walk;
  const size_t rows_out = walk.Place<BFloat16>(elements, 256);
  const size_t rows_in = walk.Place<BFloat16>(elements, 256);
  const size_t weights_out = walk.Place<float>(geometry.routes());
  const size_t weights_in = walk.Place<float>(geometry.routes());
  const size_t routes = walk.Place<int32_t>(int64_t{geometry.ranks} * geometry.routes());
  // Never nothing, also where S is 0.
  walk.Place<std::byte>(1);
  absl::StatusOr<std::unique_ptr<Memory>> memory = rank.device->Allocate(walk.size_bytes(256));
  if (!memory.ok()) return memory.status();
  rank.memory = *std::move(memory);
  std::byte* const base = rank.memory->data();
  rank.area = {reinterpret_cast<BFloat16*>(base + rows_out),
               reinterpret_cast<BFloat16*>(base + rows_in),
               reinterpret_cast<float*>(base + weights_out),
               reinterpret_cast<float*>(base + weights_in),
               reinterpret_cast<int32_t*>(base + routes),
               elements * static_cast<int64_t>(sizeof(BFloat16))};
  return absl::OkStatus();
}

class StagedDataPath final : public DataPath, public CountsTraffic {
 public:
  explicit StagedDataPath(StagedRank rank) : rank_(std::move(rank)) {}

  absl::StatusOr<PlanPtr> Dispatch(Sequence sequence, const DispatchInput& input,
                                   const DispatchOutput& output) override {
    absl::StatusOr<PlanPtr> plan = StagedDispatch(rank_, sequence, input, output);
    if (plan.ok()) return plan;
    return Recorded(plan.status());
  }
  absl::Status DispatchWithPlan(Sequence sequence, const PlanPtr& plan, const DispatchInput& input,
                                const DispatchOutput& output) override {
    return Recorded(StagedDispatchWithPlan(rank_, sequence, plan, input, output));
  }
  absl::Status PrefetchWeights(Sequence sequence, const PlanPtr& plan,
                               const ExpertWeights& weights) override {
    return Recorded(StagedPrefetchWeights(rank_, sequence, plan, weights));
  }
  absl::Status RunExperts(const PlanPtr& plan, const ExpertWeights& weights,
                          const RunExpertsInput& input) override {
    absl::Status status = rank_.device->progress().BeginLocal(Operation::kRunExperts);
    if (!status.ok()) return status;
    const auto staged = StagedPlanOf(rank_.shape(), plan);
    if (!staged.ok()) return staged.status();
    const Geometry& geometry = rank_.shape().geometry;
    if (geometry.slots < geometry.experts_per_rank()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the buffer has B = ", geometry.slots,
          " slots per rank, expected at least E/R = ", geometry.experts_per_rank(),
          ": over transport nccl no rank reads the weights of another where they are"));
    }
    return rank_.device->RunExperts((*staged)->of_backend(), weights, input);
  }
  absl::Status Combine(Sequence sequence, const PlanPtr& plan, const CombineInput& input,
                       const CombineOutput& output) override {
    return Recorded(StagedCombine(rank_, sequence, plan, input, output));
  }
  absl::Status ReduceGradients(Sequence sequence, const PlanPtr& plan,
                               const ExpertGradients& gradients) override {
    return Recorded(StagedReduceGradients(rank_, sequence, plan, gradients));
  }
  absl::Status Barrier(Sequence sequence) override {
    absl::Status status = rank_.collective->Begin(sequence, Operation::kBarrier);
    if (!status.ok()) return status;
    return Recorded(rank_.collective->Enter(rank_.shape().Descriptor(Operation::kBarrier), 0));
  }
  absl::Status ProbeCopy(CopyProbe probe, int64_t rows) override {
    absl::Status status = rank_.collective->BeginLocal(Operation::kProbeCopy);
    RankShape& shape = rank_.shape();
    if (status.ok()) status = CheckProbedRows(shape, rows);
    if (!status.ok() || rows == 0) return status;
    const int64_t half = shape.logical_rows() / 2;
    BFloat16* const from = shape.own().rows;
    BFloat16* const to = from + half * shape.hidden;
    shape.live = LiveRows();
    if (probe == CopyProbe::kOwnShard) {
      status = rank_.device->CopyRows({to}, {from}, rows);
      return status.ok() ? rank_.device->Wait() : status;
    }
    // What a rank gets is what the one before it sends, so all have to probe.
    const int32_t next = (shape.rank.value + 1) % rank_.ranks();
    const int32_t before = (shape.rank.value + rank_.ranks() - 1) % rank_.ranks();
    const size_t bytes = shape.row_bytes(rows);
    return rank_.collective->Transfer({{next, reinterpret_cast<const std::byte*>(from), bytes}},
                                      {{before, reinterpret_cast<std::byte*>(to), bytes}});
  }
  absl::Status Decline(Sequence sequence) override {
    return Recorded(rank_.collective->Decline(sequence));
  }

  // Every operation has ended when its call returns.
  absl::Status Synchronize() override { return absl::OkStatus(); }

  void Abort(int32_t lost_rank, const std::string& reason) override {
    rank_.device->progress().Abort(lost_rank, reason);
    rank_.device->Abort(lost_rank, reason);
  }
  void RequestCancel(bool wanted) override { rank_.collective->RequestCancel(wanted); }
  absl::optional<ErrorRecord> last_error() const override {
    return rank_.device->progress().last_error();
  }

  absl::StatusOr<PlanTensors> ReadPlan(const PlanPtr& plan) const override {
    const auto staged = StagedPlanOf(rank_.shape(), plan);
    if (!staged.ok()) return staged.status();
    return (*staged)->tensors();
  }
  std::shared_ptr<const LinkTraffic> traffic() const override {
    return rank_.collective->traffic();
  }
  BFloat16* rows() const override { return rank_.shape().own().rows; }
  float* row_weights() const override { return rank_.shape().own().row_weights; }

 private:
  // What fails behind the entry of an operation on this rank alone, such as a copy within its
  // memory, is no refusal: the others wait for what it does not send, and learn of it by the
  // record.
  absl::Status Recorded(absl::Status status) {
    if (status.ok() || !rank_.collective->inside()) return status;
    Progress& progress = rank_.device->progress();
    const absl::optional<ErrorRecord> found = progress.last_error();
    // Of weights that some rank does not hold, all ranks know.
    const bool stale = found && found->reason == static_cast<uint32_t>(AbortReason::kStaleWeights);
    if (found && (!stale || absl::IsFailedPrecondition(status))) return status;
    ErrorRecord record;
    record.reason = static_cast<uint32_t>(AbortReason::kAborted);
    return progress.Fail(record, std::string(status.message()));
  }

  StagedRank rank_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataPath>> CreateStagedDataPath(
    std::unique_ptr<StagedDevice> device, std::unique_ptr<PeerExchange> exchange) {
  StagedRank rank;
  rank.device = std::move(device);
  auto collective = StagedCollective::Create(*rank.device, std::move(exchange));
  if (!collective.ok()) return collective.status();
  rank.collective = *std::move(collective);
  rank.lists = std::make_shared<ListPool>(rank.shape().geometry);
  if (absl::Status status = AllocateArea(rank); !status.ok()) return status;
  return std::make_unique<StagedDataPath>(std::move(rank));
}

}  // namespace perigee
