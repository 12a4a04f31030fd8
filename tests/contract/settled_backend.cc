#include "tests/contract/settled_backend.h"

#include <string>
#include <utility>

#include "kernels/direct_publication.h"

namespace perigee {
namespace {

class SettledDataPath final : public DataPath, public DirectPublication {
 public:
  explicit SettledDataPath(std::unique_ptr<DataPath> path) : path_(std::move(path)) {}

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
  absl::Status ProbeCopy(CopyProbe probe) override { return Settle(path_->ProbeCopy(probe)); }
  absl::StatusOr<TargetPtr> PrepareDispatch(Sequence sequence, const TargetInput& input) override {
    return SettleValue(path_->publication()->PrepareDispatch(sequence, input));
  }
  absl::Status PreparePublication(const TargetPtr& target, const float* route_weights) override {
    return Settle(path_->publication()->PreparePublication(target, route_weights));
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
    if (!value.ok()) return value;
    absl::Status status = path_->Synchronize();
    if (!status.ok()) return status;
    return value;
  }
  absl::Status Settle(absl::Status status) {
    return status.ok() ? path_->Synchronize() : std::move(status);
  }

  const std::unique_ptr<DataPath> path_;
};

class SettledBackend final : public Backend {
 public:
  explicit SettledBackend(Backend& backend) : backend_(backend) {}

  BackendInfo info() const override { return backend_.info(); }
  absl::StatusOr<std::unique_ptr<Memory>> AllocateShared(size_t size_bytes,
                                                         PeerAccess access) override {
    return backend_.AllocateShared(size_bytes, access);
  }
  absl::StatusOr<std::unique_ptr<Memory>> AllocatePrivate(size_t size_bytes) override {
    return backend_.AllocatePrivate(size_bytes);
  }
  absl::StatusOr<std::unique_ptr<Memory>> Import(int descriptor, size_t size_bytes,
                                                 PeerAccess access) override {
    return backend_.Import(descriptor, size_bytes, access);
  }
  absl::Status CopyIn(std::byte* to, absl::Span<const std::byte> from) override {
    return backend_.CopyIn(to, from);
  }
  absl::Status CopyOut(absl::Span<std::byte> to, const std::byte* from) override {
    return backend_.CopyOut(to, from);
  }
  absl::StatusOr<std::unique_ptr<DataPath>> CreateDataPath(
      const DataPathOptions& options) override {
    absl::StatusOr<std::unique_ptr<DataPath>> path = backend_.CreateDataPath(options);
    if (!path.ok()) return path;
    return std::make_unique<SettledDataPath>(*std::move(path));
  }
  absl::StatusOr<std::string> NewRendezvous() override { return backend_.NewRendezvous(); }

 private:
  Backend& backend_;
};

}  // namespace

std::unique_ptr<Backend> MakeSettledBackend(Backend& backend) {
  return std::make_unique<SettledBackend>(backend);
}

}  // namespace perigee
