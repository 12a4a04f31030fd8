// A data path that moves nothing: it notes every call and answers as the test says.
#ifndef PERIGEE_WORKER_TESTING_FAKE_DATA_PATH_H_
#define PERIGEE_WORKER_TESTING_FAKE_DATA_PATH_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/direct_publication.h"
#include "kernels/owner_source.h"
#include "kernels/row_producer.h"
#include "worker/testing/fake_rings.h"

namespace perigee {

// Thread-safe in as far as a DataPath is; calls() from any thread.
class FakeDataPath final : public DataPath,
                           public DirectPublication,
                           public OwnerSource,
                           public RowProducer {
 public:
  // How an operation ends: OK; or an error with a record, an operation that was entered and left
  // early; or an error without one, a refusal before anything was touched.
  struct Outcome {
    absl::Status status;
    absl::optional<ErrorRecord> record;
  };
  // Asked on every operation; "decline" for Decline. May block, for example in AwaitAbort.
  using Behaviour = std::function<Outcome(const std::string& operation, Sequence sequence)>;

  explicit FakeDataPath(const DataPathOptions& options, std::function<void()> on_end = {});
  ~FakeDataPath() override;

  void set_behaviour(Behaviour behaviour) { behaviour_ = std::move(behaviour); }
  // From now on calls return OK and Synchronize tells the first failure, but for INVALID_ARGUMENT
  // without a record, which is refused at once. Each operation takes kQueuedDuration. Marks, of
  // which behaviour is asked too, are among the calls as "mark".
  static constexpr absl::Duration kQueuedDuration = absl::Milliseconds(2);
  void set_queues() { queues_ = true; }
  // "dispatch 1", "run_experts 0", "decline 7", in order.
  std::vector<std::string> calls() const;
  // An operation that ends early for this reason, as a backend would report it.
  Outcome LeaveEarly(AbortReason reason, Operation operation, Sequence sequence,
                     int32_t awaited_rank = -1) const;
  // Blocks until Abort or RequestCancel(true); then what an operation that was waiting returns.
  Outcome AwaitAbort(Operation operation, Sequence sequence);
  // Blocks until some thread is in AwaitAbort.
  void AwaitWaiter();
  bool cancel_requested() const;
  int settled() const { return settled_; }  // calls of Synchronize
  Timing timing() const { return timing_; }
  DispatchInput last_dispatch() const { return last_dispatch_; }
  CombineInput last_combine() const { return last_combine_; }
  RunExpertsInput last_run_experts() const { return last_run_experts_; }
  ExpertWeights last_weights() const { return last_weights_; }
  ExpertGradients last_gradients() const { return last_gradients_; }
  ProductInput last_product() const { return last_product_; }
  const DataPathOptions& options() const { return options_; }

  absl::StatusOr<PlanPtr> Dispatch(Sequence sequence, const DispatchInput& input,
                                   const DispatchOutput& output) override;
  absl::Status DispatchWithPlan(Sequence sequence, const PlanPtr& plan, const DispatchInput& input,
                                const DispatchOutput& output) override;
  absl::Status PrefetchWeights(Sequence sequence, const PlanPtr& plan,
                               const ExpertWeights& weights) override;
  absl::Status PrefetchWeightsBeside(Sequence sequence, const PlanPtr& plan,
                                     const ExpertWeights& weights) override;
  absl::Status Join() override;
  absl::Status RunExperts(const PlanPtr& plan, const ExpertWeights& weights,
                          const RunExpertsInput& input) override;
  absl::Status Combine(Sequence sequence, const PlanPtr& plan, const CombineInput& input,
                       const CombineOutput& output) override;
  absl::Status ReduceGradients(Sequence sequence, const PlanPtr& plan,
                               const ExpertGradients& gradients) override;
  absl::Status Barrier(Sequence sequence) override;
  absl::Status ProbeCopy(CopyProbe probe, int64_t rows) override;
  absl::StatusOr<TargetPtr> PrepareDispatch(Sequence sequence, const TargetInput& input) override;
  absl::Status PreparePublication(const TargetPtr& target, const float* route_weights) override;
  absl::Status PreparePublicationBeside(const TargetPtr& target,
                                        const float* route_weights) override;
  absl::Status StoreRows(const TargetPtr& target, const BFloat16* hidden) override;
  // Notes "produce" or "produce into", writes the first element of an output as Combine does.
  absl::Status Produce(const ProductInput& input, BFloat16* output) override;
  absl::Status ProduceInto(const ProductInput& input, const TargetPtr& target) override;
  RowProducer* producer() override { return this; }
  // With slots as the options have them.
  BufferRings* rings() override { return &rings_.rings(); }
  FakeRings& fake_rings() { return rings_; }
  absl::StatusOr<PlanPtr> Publish(Sequence sequence, const TargetPtr& target,
                                  const DispatchOutput& output) override;
  void DropTarget() override;  // where there is one, among the calls as "drop_target"
  DirectPublication* publication() override { return this; }
  absl::StatusOr<SourcePtr> PrepareSource(Sequence sequence, const SourceInput& input) override;
  absl::StatusOr<PlanPtr> Materialise(Sequence sequence, const SourcePtr& source,
                                      const DispatchOutput& output) override;
  BFloat16* source_hidden() const override { return nullptr; }
  float* source_route_weights() const override { return nullptr; }
  OwnerSource* source() override { return this; }
  SourceInput last_source() const { return last_source_; }
  absl::Status Decline(Sequence sequence) override;
  bool queues() const override { return queues_; }
  absl::Status Synchronize() override;
  size_t operations_ended() const override { return ended_; }
  Polled Poll() override;
  // From now on Poll sees no more than so many operations end.
  void set_running(size_t operations) { may_end_ = operations; }
  void set_timing(Timing timing) override { timing_ = timing; }
  absl::Status MarkTime() override;
  std::vector<absl::Duration> durations() const override { return durations_; }
  void Abort(int32_t lost_rank, const std::string& reason) override;
  void RequestCancel(bool wanted) override;
  absl::optional<ErrorRecord> last_error() const override;
  absl::StatusOr<PlanTensors> ReadPlan(const PlanPtr& plan) const override;
  // In this rank's shard, where the options have one, apart.
  BFloat16* rows() const override;
  float* row_weights() const override;

 private:
  absl::Status Run(const std::string& operation, Sequence sequence);

  const DataPathOptions options_;
  const std::function<void()> on_end_;
  Behaviour behaviour_;
  bool queues_ = false;
  bool has_target_ = false;
  Timing timing_ = Timing::kOperations;
  struct Queued {
    Outcome outcome;
    Sequence source_before;  // that lived
  };
  std::vector<Queued> queued_;
  LivingSource living_source_;
  uint32_t told_ = 0;  // before those queued
  FakeRings rings_;
  size_t may_end_ = SIZE_MAX;
  std::vector<size_t> marks_;  // how many operations are queued before each
  int settled_ = 0;
  size_t ended_ = 0;
  std::vector<absl::Duration> durations_;
  std::vector<BFloat16> rows_;
  std::vector<float> row_weights_;
  DispatchInput last_dispatch_;
  SourceInput last_source_;
  CombineInput last_combine_;
  RunExpertsInput last_run_experts_;
  ExpertWeights last_weights_;
  ExpertGradients last_gradients_;
  ProductInput last_product_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> calls_;
  absl::optional<ErrorRecord> last_error_;
  bool aborted_ = false;
  int32_t lost_rank_ = -1;
  std::string abort_reason_;
  bool cancel_requested_ = false;
  int waiters_ = 0;
};

// A plan handle that carries a tag and nothing else.
PlanPtr MakeFakePlan(ObjectTag tag);

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_FAKE_DATA_PATH_H_
