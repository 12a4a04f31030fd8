#include "kernels/cuda/cuda_data_path.h"

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_rank.h"
#include "kernels/cuda/expert_scratch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/settle.h"
#include "kernels/device/caller_stream.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"
#include "kernels/rank/argument_checks.h"
#include "kernels/rank/path_rings.h"

namespace perigee {
namespace {

// Words in the host page that a kernel polls.
void SetWord(uint32_t& word, bool value) {
  std::atomic_ref<uint32_t>(word).store(value ? 1 : 0, std::memory_order_release);
}

class CudaRingSide final : public RingSide {
 public:
  explicit CudaRingSide(CudaRank& rank) : rank_(rank) {}

  void UseSlot(int32_t slot) override { perigee::UseSlot(rank_, slot); }
  absl::Status FreeInOrder(int32_t slot) override {
    const auto scope = DeviceScope::Enter(rank_.device);
    return scope.ok() ? QueueFreeSlot(rank_, slot) : scope.status();
  }
  absl::Status FreeOnStream(int32_t slot, CUstream_st* stream) override {
    return WriteWordOnStream(rank_.device, stream, rank_.DeviceWordOf(slot), 1);
  }
  uint64_t* WordOf(int32_t slot) const override { return rank_.WordOf(slot); }
  BFloat16* ExpertRows(int32_t slot) const override {
    return reinterpret_cast<BFloat16*>(rank_.expert_slots->data() +
                                       slot * rank_.row_bytes(rank_.logical_rows()));
  }
  void ForgetError() override { rank_.progress->Forget(); }
  uint32_t last_place() const override {
    return rank_.told + static_cast<uint32_t>(rank_.queued.size()) - 1;
  }

 private:
  CudaRank& rank_;
};

class CudaDataPath final : public DataPath,
                           public DirectPublication,
                           public OwnerSource,
                           public RowProducer {
 public:
  CudaDataPath(CudaRank rank, const RingOptions& rings)
      : rank_(std::move(rank)), ring_side_(rank_), rings_(rings, *this, rank_, ring_side_) {}
  ~CudaDataPath() override {
    // Nothing that kernels use may go before they have ended; their waits end by themselves.
    if (!rank_.queued.empty()) Abort(-1, "the data path is being destroyed");
    LogCudaError(WaitForStream(rank_));
    rank_.source.Set(Sequence());
  }

  absl::StatusOr<PlanPtr> Dispatch(Sequence sequence, const DispatchInput& input,
                                   const DispatchOutput& output) override {
    return TimedValue<PlanPtr>([&] { return QueueDispatch(rank_, sequence, input, output); });
  }
  absl::Status DispatchWithPlan(Sequence sequence, const PlanPtr& plan, const DispatchInput& input,
                                const DispatchOutput& output) override {
    return Timed([&] { return QueueDispatchWithPlan(rank_, sequence, plan, input, output); });
  }
  absl::Status PrefetchWeights(Sequence sequence, const PlanPtr& plan,
                               const ExpertWeights& weights) override {
    return Timed([&] { return QueuePrefetchWeights(rank_, sequence, plan, weights); });
  }
  absl::Status PrefetchWeightsBeside(Sequence sequence, const PlanPtr& plan,
                                     const ExpertWeights& weights) override {
    return Timed([&] { return QueuePrefetchBeside(rank_, sequence, plan, weights); });
  }
  absl::Status Join() override {
    if (!rank_.beside) return absl::OkStatus();
    return Timed([&] { return QueueJoin(rank_); });
  }
  absl::Status RunExperts(const PlanPtr& plan, const ExpertWeights& weights,
                          const RunExpertsInput& input) override {
    return Timed([&] { return QueueRunExperts(rank_, plan, weights, input); });
  }
  absl::Status Combine(Sequence sequence, const PlanPtr& plan, const CombineInput& input,
                       const CombineOutput& output) override {
    return Timed([&] { return QueueCombine(rank_, sequence, plan, input, output); });
  }
  absl::Status ReduceGradients(Sequence sequence, const PlanPtr& plan,
                               const ExpertGradients& gradients) override {
    return Timed([&] { return QueueReduceGradients(rank_, sequence, plan, gradients); });
  }
  absl::Status Barrier(Sequence sequence) override {
    return Timed([&] { return QueueBarrier(rank_, sequence); });
  }
  absl::Status ProbeCopy(CopyProbe probe, int64_t rows) override {
    return Timed([&] { return QueueProbeCopy(rank_, probe, rows); });
  }
  absl::StatusOr<TargetPtr> PrepareDispatch(Sequence sequence, const TargetInput& input) override {
    return TimedValue<TargetPtr>([&] { return QueuePrepareDispatch(rank_, sequence, input); });
  }
  absl::Status PreparePublication(const TargetPtr& target, const float* route_weights) override {
    return Timed([&] { return QueuePreparePublication(rank_, target, route_weights); });
  }
  absl::Status PreparePublicationBeside(const TargetPtr& target,
                                        const float* route_weights) override {
    return Timed([&] { return QueuePreparationBeside(rank_, target, route_weights); });
  }
  absl::Status StoreRows(const TargetPtr& target, const BFloat16* hidden) override {
    return Timed([&] { return QueueStoreRows(rank_, target, hidden); });
  }
  absl::StatusOr<PlanPtr> Publish(Sequence sequence, const TargetPtr& target,
                                  const DispatchOutput& output) override {
    return TimedValue<PlanPtr>([&] { return QueuePublish(rank_, sequence, target, output); });
  }
  void DropTarget() override {
    if (rank_.live.target != Sequence()) rank_.live = LiveRows();
    const absl::Status status = OnDevice([&] { return WaitForPreparation(rank_); });
    if (!status.ok()) Abort(-1, std::string(status.message()));
  }
  DirectPublication* publication() override { return this; }
  absl::StatusOr<SourcePtr> PrepareSource(Sequence sequence, const SourceInput& input) override {
    return TimedValue<SourcePtr>([&] { return QueuePrepareSource(rank_, sequence, input); });
  }
  absl::StatusOr<PlanPtr> Materialise(Sequence sequence, const SourcePtr& source,
                                      const DispatchOutput& output) override {
    return TimedValue<PlanPtr>([&] { return QueueMaterialise(rank_, sequence, source, output); });
  }
  BFloat16* source_hidden() const override { return rank_.sources[rank_.rank.value].hidden; }
  float* source_route_weights() const override {
    return rank_.sources[rank_.rank.value].route_weights;
  }
  OwnerSource* source() override { return rank_.sources.empty() ? nullptr : this; }
  absl::Status Produce(const ProductInput& input, BFloat16* output) override {
    return Timed([&] { return QueueProduce(rank_, input, output); });
  }
  absl::Status ProduceInto(const ProductInput& input, const TargetPtr& target) override {
    return Timed([&] { return QueueProduceInto(rank_, input, target); });
  }
  RowProducer* producer() override { return this; }
  BufferRings* rings() override { return &rings_; }
  absl::Status Decline(Sequence sequence) override {
    return Timed([&] { return QueueDecline(rank_, sequence); });
  }
  bool queues() const override { return true; }
  absl::Status Synchronize() override {
    return OnDevice([&] {
      const uint32_t told = rank_.told;
      absl::Status status = Settle(rank_);
      rings_.Ended(told + static_cast<uint32_t>(rank_.operations_ended));
      if (!status.ok()) rings_.UndoRest();
      return status;
    });
  }
  size_t operations_ended() const override { return rank_.operations_ended; }
  Polled Poll() override {
    const Polled polled = PollEnded(rank_);
    rings_.Ended(rank_.told);
    return polled;
  }
  void set_timing(Timing timing) override { timing_ = timing; }
  absl::Status MarkTime() override {
    if (timing_ != Timing::kMarks) return absl::FailedPreconditionError("operations are timed");
    return OnDevice([&]() -> absl::Status {
      auto event = RecordEvent(rank_);
      if (!event.ok()) return event.status();
      rank_.queued_marks.push_back({*std::move(event), rank_.queued.size()});
      return absl::OkStatus();
    });
  }
  std::vector<absl::Duration> durations() const override { return rank_.durations; }

  void Abort(int32_t lost_rank, const std::string& reason) override {
    rank_.progress->Abort(lost_rank, reason);
    SetWord(rank_.page->host()->abort, true);
  }
  void RequestCancel(bool wanted) override { SetWord(rank_.page->host()->cancel_wanted, wanted); }
  absl::optional<ErrorRecord> last_error() const override { return rank_.progress->last_error(); }

  absl::StatusOr<PlanTensors> ReadPlan(const PlanPtr& plan) const override {
    const auto cuda_plan = CudaPlanOf(rank_, plan);
    if (!cuda_plan.ok()) return cuda_plan.status();
    if (absl::Status status = WaitForStream(rank_); !status.ok()) return status;
    if (rank_.page->host()->report.kind != static_cast<uint32_t>(ReportKind::kNone)) {
      return absl::FailedPreconditionError("an operation has failed: Synchronize tells which");
    }
    return ReadPlanTensors(rank_.device, rank_, **cuda_plan);
  }
  BFloat16* rows() const override { return rank_.own().rows; }
  float* row_weights() const override { return rank_.own().row_weights; }

 private:
  template <typename Body>
  absl::Status OnDevice(const Body& body) {
    const auto scope = DeviceScope::Enter(rank_.device);
    return scope.ok() ? body() : scope.status();
  }

  // An operation between two events in the stream, unless the caller sets marks.
  template <typename Queue>
  absl::Status Timed(const Queue& queue) {
    if (timing_ == Timing::kMarks) return OnDevice(queue);
    return OnDevice([&]() -> absl::Status {
      auto begin = RecordEvent(rank_);
      if (!begin.ok()) return begin.status();
      if (absl::Status status = queue(); !status.ok()) {
        rank_.spare_events.push_back(*std::move(begin));
        return status;
      }
      auto end = RecordEvent(rank_);
      // The operation runs: it must not look refused.
      if (!end.ok()) Abort(-1, std::string(end.status().message()));
      if (!end.ok()) return end.status();
      rank_.queued.back().begin = *std::move(begin);
      rank_.queued.back().end = *std::move(end);
      return absl::OkStatus();
    });
  }

  // Of an operation that makes something.
  template <typename Value, typename Queue>
  absl::StatusOr<Value> TimedValue(const Queue& queue) {
    absl::StatusOr<Value> value = Value();
    absl::Status status = Timed([&] {
      value = queue();
      return value.status();
    });
    if (!status.ok()) return status;
    return value;
  }

  mutable CudaRank rank_;
  CudaRingSide ring_side_;
  PathRings rings_;
  Timing timing_ = Timing::kOperations;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DataPath>> CreateCudaDataPath(int device,
                                                             const DataPathOptions& options,
                                                             std::unique_ptr<SmBudget::Share> sms) {
  absl::StatusOr<CudaRank> rank = CreateCudaRank(device, options, std::move(sms));
  if (!rank.ok()) return rank.status();
  if (options.intermediate > 0) {
    const auto scratch = TakeExpertScratch(*rank, options.intermediate);
    if (!scratch.ok()) return scratch.status();
  }
  return std::make_unique<CudaDataPath>(*std::move(rank), options.rings);
}

}  // namespace perigee
