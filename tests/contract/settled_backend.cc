#include "tests/contract/settled_backend.h"

#include <string>
#include <utility>

#include "kernels/buffer_rings.h"
#include "kernels/direct_publication.h"
#include "kernels/owner_source.h"
#include "kernels/row_producer.h"
#include "tests/contract/forwarding_backend.h"

namespace perigee {
namespace {

template <typename T>
absl::StatusOr<T> SettleValueOf(DataPath& path, absl::StatusOr<T> value) {
  if (!value.ok()) return value;
  absl::Status status = path.Synchronize();
  if (!status.ok()) return status;
  return value;
}

class SettledRings final : public BufferRings {
 public:
  explicit SettledRings(DataPath& path) : path_(path) {}

  absl::StatusOr<SlotDispatched> Dispatch(Sequence sequence, const DispatchInput& input,
                                          const PlanArrays& plan_output) override {
    return SettleValueOf(path_, rings().Dispatch(sequence, input, plan_output));
  }
  absl::StatusOr<RingSlot> DispatchWithPlan(Sequence sequence, const PlanPtr& plan,
                                            const DispatchInput& input) override {
    return SettleValueOf(path_, rings().DispatchWithPlan(sequence, plan, input));
  }
  absl::StatusOr<RingSlot> RunExperts(const RingSlot& slot, const PlanPtr& plan,
                                      const ExpertWeights& weights,
                                      const SlotExperts& experts) override {
    return SettleValueOf(path_, rings().RunExperts(slot, plan, weights, experts));
  }
  absl::Status Combine(Sequence sequence, const PlanPtr& plan, const RingSlot& slot,
                       const float* row_weights, const CombineOutput& output) override {
    absl::Status status = rings().Combine(sequence, plan, slot, row_weights, output);
    return status.ok() ? path_.Synchronize() : status;
  }
  absl::StatusOr<RingSlot> AcquireExpertOutput(const PlanPtr& plan) override {
    return rings().AcquireExpertOutput(plan);
  }
  absl::Status Release(const RingSlot& slot) override {
    absl::Status status = rings().Release(slot);
    return status.ok() ? path_.Synchronize() : status;
  }
  absl::Status ReleaseOnStream(const RingSlot& slot, CUstream_st* stream) override {
    return rings().ReleaseOnStream(slot, stream);
  }
  absl::StatusOr<ReleaseWord> ReleaseByWord(const RingSlot& slot) override {
    return rings().ReleaseByWord(slot);
  }
  absl::Status ReleaseAll() override {
    absl::Status status = rings().ReleaseAll();
    return status.ok() ? path_.Synchronize() : status;
  }
  absl::Status CaptureRelease(int32_t index, CUstream_st* stream) override {
    return rings().CaptureRelease(index, stream);
  }
  SlotState Probe(const RingSlot& slot) const override { return rings().Probe(slot); }
  absl::StatusOr<SlotMemory> MemoryOf(const RingSlot& slot) const override {
    return rings().MemoryOf(slot);
  }
  int32_t slots(RingKind ring) const override { return rings().slots(ring); }
  int32_t next(RingKind ring) const override { return rings().next(ring); }
  int32_t acquired(RingKind ring) const override { return rings().acquired(ring); }

 private:
  BufferRings& rings() const { return *path_.rings(); }

  DataPath& path_;
};

class SettledDataPath final : public DataPath,
                              public DirectPublication,
                              public OwnerSource,
                              public RowProducer {
 public:
  explicit SettledDataPath(std::unique_ptr<DataPath> path)
      : path_(std::move(path)), rings_(*path_) {}

  absl::StatusOr<PlanPtr> Dispatch(Sequence sequence, const DispatchInput& input,
                                   const DispatchOutput& output) override {
    return SettleValue(path_->Dispatch(sequence, input, output));
  }
  absl::Status DispatchWithPlan(Sequence sequence, const PlanPtr& plan, const DispatchInput& input,
                                const DispatchOutput& output) override {
    return Settle(path_->DispatchWithPlan(sequence, plan, input, output));
  }
  absl::Status PrefetchWeights(Sequence sequence, const PlanPtr& plan,
                               const ExpertWeights& weights) override {
    return Settle(path_->PrefetchWeights(sequence, plan, weights));
  }
  absl::Status RunExperts(const PlanPtr& plan, const ExpertWeights& weights,
                          const RunExpertsInput& input) override {
    return Settle(path_->RunExperts(plan, weights, input));
  }
  absl::Status Combine(Sequence sequence, const PlanPtr& plan, const CombineInput& input,
                       const CombineOutput& output) override {
    return Settle(path_->Combine(sequence, plan, input, output));
  }
  absl::Status ReduceGradients(Sequence sequence, const PlanPtr& plan,
                               const ExpertGradients& gradients) override {
    return Settle(path_->ReduceGradients(sequence, plan, gradients));
  }
  absl::Status Barrier(Sequence sequence) override { return Settle(path_->Barrier(sequence)); }
  absl::Status ProbeCopy(CopyProbe probe, int64_t rows) override {
    return Settle(path_->ProbeCopy(probe, rows));
  }
  absl::StatusOr<TargetPtr> PrepareDispatch(Sequence sequence, const TargetInput& input) override {
    return SettleValue(path_->publication()->PrepareDispatch(sequence, input));
  }
  absl::Status PreparePublication(const TargetPtr& target, const float* route_weights) override {
    return Settle(path_->publication()->PreparePublication(target, route_weights));
  }
  absl::Status PreparePublicationBeside(const TargetPtr& target,
                                        const float* route_weights) override {
    return Settle(path_->publication()->PreparePublicationBeside(target, route_weights));
  }
  absl::Status StoreRows(const TargetPtr& target, const BFloat16* hidden) override {
    return Settle(path_->publication()->StoreRows(target, hidden));
  }
  absl::StatusOr<PlanPtr> Publish(Sequence sequence, const TargetPtr& target,
                                  const DispatchOutput& output) override {
    return SettleValue(path_->publication()->Publish(sequence, target, output));
  }
  void DropTarget() override { path_->publication()->DropTarget(); }
  DirectPublication* publication() override {
    return path_->publication() == nullptr ? nullptr : this;
  }
  absl::StatusOr<SourcePtr> PrepareSource(Sequence sequence, const SourceInput& input) override {
    return SettleValue(path_->source()->PrepareSource(sequence, input));
  }
  absl::StatusOr<PlanPtr> Materialise(Sequence sequence, const SourcePtr& source,
                                      const DispatchOutput& output) override {
    return SettleValue(path_->source()->Materialise(sequence, source, output));
  }
  BFloat16* source_hidden() const override { return path_->source()->source_hidden(); }
  float* source_route_weights() const override { return path_->source()->source_route_weights(); }
  OwnerSource* source() override { return path_->source() == nullptr ? nullptr : this; }
  absl::Status Produce(const ProductInput& input, BFloat16* output) override {
    return Settle(path_->producer()->Produce(input, output));
  }
  absl::Status ProduceInto(const ProductInput& input, const TargetPtr& target) override {
    return Settle(path_->producer()->ProduceInto(input, target));
  }
  RowProducer* producer() override { return path_->producer() == nullptr ? nullptr : this; }
  BufferRings* rings() override { return path_->rings() == nullptr ? nullptr : &rings_; }
  absl::Status Decline(Sequence sequence) override { return Settle(path_->Decline(sequence)); }
  absl::Status Synchronize() override { return path_->Synchronize(); }

  void Abort(int32_t lost_rank, const std::string& reason) override {
    path_->Abort(lost_rank, reason);
  }
  void RequestCancel(bool wanted) override { path_->RequestCancel(wanted); }
  absl::optional<ErrorRecord> last_error() const override { return path_->last_error(); }
  absl::StatusOr<PlanTensors> ReadPlan(const PlanPtr& plan) const override {
    return path_->ReadPlan(plan);
  }
  BFloat16* rows() const override { return path_->rows(); }
  float* row_weights() const override { return path_->row_weights(); }

 private:
  template <typename T>
  absl::StatusOr<T> SettleValue(absl::StatusOr<T> value) {
    return SettleValueOf(*path_, std::move(value));
  }
  absl::Status Settle(absl::Status status) {
    return status.ok() ? path_->Synchronize() : std::move(status);
  }

  const std::unique_ptr<DataPath> path_;
  SettledRings rings_;
};

class SettledBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  absl::StatusOr<std::unique_ptr<DataPath>> CreateDataPath(
      const DataPathOptions& options) override {
    absl::StatusOr<std::unique_ptr<DataPath>> path = ForwardingBackend::CreateDataPath(options);
    if (!path.ok()) return path;
    return std::make_unique<SettledDataPath>(*std::move(path));
  }
};

}  // namespace

std::unique_ptr<Backend> MakeSettledBackend(Backend& backend) {
  return std::make_unique<SettledBackend>(backend);
}

}  // namespace perigee
