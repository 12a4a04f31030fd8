#include "worker/testing/fake_data_path.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/rank/plan_output.h"

namespace perigee {
namespace {

class FakePlan final : public PlanHandle {
 public:
  explicit FakePlan(ObjectTag tag) : tag_(tag) {}
  ObjectTag tag() const override { return tag_; }

 private:
  const ObjectTag tag_;
};

class FakeTarget final : public TargetHandle {
 public:
  FakeTarget(ObjectTag tag, int32_t token_count) : tag_(tag), token_count_(token_count) {}
  ObjectTag tag() const override { return tag_; }
  int32_t token_count() const override { return token_count_; }
  const ProducerView& producer() const override { return producer_; }

 private:
  const ObjectTag tag_;
  const int32_t token_count_;
  const ProducerView producer_;
};

class FakeSource final : public SourceHandle {
 public:
  FakeSource(ObjectTag tag, RankId rank, LivingSource living, int32_t token_count)
      : tag_(tag),
        rank_(rank),
        living_(std::move(living)),
        token_count_(token_count),
        plan_(MakeFakePlan(tag)) {}
  ObjectTag tag() const override { return tag_; }
  RankId rank() const override { return rank_; }
  int32_t token_count() const override { return token_count_; }
  const PlanPtr& plan() const override { return plan_; }

 private:
  const LivingSource& living() const override { return living_; }
  const SourceView& view() const override { return view_; }

  const ObjectTag tag_;
  const RankId rank_;
  const LivingSource living_;
  const int32_t token_count_;
  const PlanPtr plan_;
  const SourceView view_;
};

}  // namespace

PlanPtr MakeFakePlan(ObjectTag tag) { return std::make_shared<FakePlan>(tag); }

FakeDataPath::FakeDataPath(const DataPathOptions& options, std::function<void()> on_end)
    : options_(options),
      on_end_(std::move(on_end)),
      rings_(options, *this, [this] { return told_ + static_cast<uint32_t>(queued_.size()) - 1; }),
      rows_(options.geometry.logical_rows() * options.hidden),
      row_weights_(options.geometry.logical_rows()) {}

FakeDataPath::~FakeDataPath() {
  living_source_.Set(Sequence());
  if (on_end_) on_end_();
}

std::vector<std::string> FakeDataPath::calls() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return calls_;
}

FakeDataPath::Outcome FakeDataPath::LeaveEarly(AbortReason reason, Operation operation,
                                               Sequence sequence, int32_t awaited_rank) const {
  ErrorRecord record;
  record.generation = options_.generation.value;
  record.sequence = sequence.value;
  record.operation = static_cast<uint32_t>(operation);
  record.phase = static_cast<uint32_t>(Phase::kEntry);
  record.reason = static_cast<uint32_t>(reason);
  record.rank = options_.rank.value;
  record.awaited_rank = awaited_rank;
  const absl::StatusCode code =
      reason == AbortReason::kAborted        ? absl::StatusCode::kUnavailable
      : reason == AbortReason::kDeadline     ? absl::StatusCode::kDeadlineExceeded
      : reason == AbortReason::kCancelled    ? absl::StatusCode::kCancelled
      : reason == AbortReason::kBadRoute     ? absl::StatusCode::kInvalidArgument
      : reason == AbortReason::kDisagreement ? absl::StatusCode::kInvalidArgument
                                             : absl::StatusCode::kFailedPrecondition;
  return {absl::Status(code, "left early"), record};
}

FakeDataPath::Outcome FakeDataPath::AwaitAbort(Operation operation, Sequence sequence) {
  std::unique_lock<std::mutex> lock(mutex_);
  ++waiters_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return aborted_ || cancel_requested_; });
  --waiters_;
  return LeaveEarly(aborted_ ? AbortReason::kAborted : AbortReason::kCancelled, operation, sequence,
                    lost_rank_);
}

void FakeDataPath::AwaitWaiter() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return waiters_ > 0; });
}

bool FakeDataPath::cancel_requested() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return cancel_requested_;
}

absl::Status FakeDataPath::Run(const std::string& operation, Sequence sequence) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back(absl::StrCat(operation, " ", sequence.value));
    last_error_.reset();
  }
  Outcome outcome = behaviour_ ? behaviour_(operation, sequence) : Outcome{};
  if (queues_ && (outcome.record || !absl::IsInvalidArgument(outcome.status))) {
    queued_.push_back({std::move(outcome), living_source_.sequence()});
    return absl::OkStatus();
  }
  std::lock_guard<std::mutex> lock(mutex_);
  last_error_ = outcome.record;
  return outcome.status;
}

absl::Status FakeDataPath::Synchronize() {
  const std::vector<Queued> queued = std::exchange(queued_, {});
  const std::vector<size_t> marks = std::exchange(marks_, {});
  ++settled_;
  const auto failed = std::find_if(queued.begin(), queued.end(), [](const Queued& operation) {
    return !operation.outcome.status.ok();
  });
  ended_ = failed - queued.begin();
  rings_.rings().Ended(told_ + static_cast<uint32_t>(ended_));
  if (failed != queued.end()) rings_.rings().UndoRest();
  told_ += static_cast<uint32_t>(queued.size());
  durations_.assign(timing_ == Timing::kOperations ? ended_ : 0, kQueuedDuration);
  for (size_t i = 1; i < marks.size() && marks[i] <= ended_; ++i) {
    durations_.push_back(static_cast<int64_t>(marks[i] - marks[i - 1]) * kQueuedDuration);
  }
  if (failed == queued.end()) return absl::OkStatus();
  living_source_.Set(failed->source_before);
  std::lock_guard<std::mutex> lock(mutex_);
  last_error_ = failed->outcome.record;
  return failed->outcome.status;
}

Polled FakeDataPath::Poll() {
  Polled polled;
  while (polled.ended < std::min(queued_.size(), may_end_) &&
         queued_[polled.ended].outcome.status.ok()) {
    ++polled.ended;
  }
  polled.failed = polled.ended < std::min(queued_.size(), may_end_);
  if (may_end_ != SIZE_MAX) may_end_ -= polled.ended;
  queued_.erase(queued_.begin(), queued_.begin() + static_cast<std::ptrdiff_t>(polled.ended));
  durations_.assign(polled.ended, kQueuedDuration);
  told_ += static_cast<uint32_t>(polled.ended);
  rings_.rings().Ended(told_);
  return polled;
}

absl::Status FakeDataPath::MarkTime() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    calls_.push_back("mark");
  }
  const Outcome outcome = behaviour_ ? behaviour_("mark", Sequence()) : Outcome{};
  if (outcome.status.ok()) marks_.push_back(queued_.size());
  return outcome.status;
}

absl::StatusOr<PlanPtr> FakeDataPath::Dispatch(Sequence sequence, const DispatchInput& input,
                                               const DispatchOutput& output) {
  last_dispatch_ = input;
  if (absl::Status status = Run("dispatch", sequence); !status.ok()) return status;
  PlanPtr plan = MakeFakePlan(ObjectTag{options_.buffer, options_.generation, sequence});
  if (output.plan.sequence != nullptr) WritePlan(*ReadPlan(plan), sequence, output.plan);
  return plan;
}

absl::Status FakeDataPath::DispatchWithPlan(Sequence sequence, const PlanPtr&,
                                            const DispatchInput& input, const DispatchOutput&) {
  last_dispatch_ = input;
  return Run("dispatch_with_plan", sequence);
}

absl::Status FakeDataPath::PrefetchWeights(Sequence sequence, const PlanPtr&,
                                           const ExpertWeights& weights) {
  last_weights_ = weights;
  return Run("prefetch_weights", sequence);
}

absl::Status FakeDataPath::PrefetchWeightsBeside(Sequence sequence, const PlanPtr&,
                                                 const ExpertWeights& weights) {
  last_weights_ = weights;
  return Run("prefetch_beside", sequence);
}

absl::Status FakeDataPath::Join() { return Run("join", Sequence()); }

absl::Status FakeDataPath::RunExperts(const PlanPtr&, const ExpertWeights& weights,
                                      const RunExpertsInput& input) {
  last_weights_ = weights;
  last_run_experts_ = input;
  return Run("run_experts", Sequence(0));
}

absl::Status FakeDataPath::Combine(Sequence sequence, const PlanPtr&, const CombineInput& input,
                                   const CombineOutput& output) {
  last_combine_ = input;
  absl::Status status = Run("combine", sequence);
  if (status.ok() && options_.geometry.tokens > 0) output.hidden[0].bits = 0x3f80;
  return status;
}

absl::Status FakeDataPath::ReduceGradients(Sequence sequence, const PlanPtr&,
                                           const ExpertGradients& gradients) {
  last_gradients_ = gradients;
  return Run("reduce_gradients", sequence);
}

absl::StatusOr<TargetPtr> FakeDataPath::PrepareDispatch(Sequence sequence,
                                                        const TargetInput& input) {
  if (absl::Status status = Run("prepare_dispatch", sequence); !status.ok()) return status;
  has_target_ = true;
  if (input.plan.sequence != nullptr) WritePlan(*ReadPlan(nullptr), sequence, input.plan);
  return std::make_shared<const FakeTarget>(
      ObjectTag{options_.buffer, options_.generation, sequence}, input.token_count);
}

absl::Status FakeDataPath::PreparePublication(const TargetPtr&, const float*) {
  return Run("prepare_publication", Sequence());
}

absl::Status FakeDataPath::PreparePublicationBeside(const TargetPtr&, const float*) {
  return Run("prepare_publication beside", Sequence());
}

absl::Status FakeDataPath::Produce(const ProductInput& input, BFloat16* output) {
  last_product_ = input;
  absl::Status status = Run("produce", Sequence());
  if (status.ok() && input.token_count > 0) output[0].bits = 0x3f80;
  return status;
}

absl::Status FakeDataPath::ProduceInto(const ProductInput& input, const TargetPtr&) {
  last_product_ = input;
  return Run("produce into", Sequence());
}

absl::Status FakeDataPath::StoreRows(const TargetPtr&, const BFloat16*) {
  return Run("store_rows", Sequence());
}

absl::StatusOr<PlanPtr> FakeDataPath::Publish(Sequence sequence, const TargetPtr& target,
                                              const DispatchOutput&) {
  has_target_ = false;
  if (absl::Status status = Run("publish", sequence); !status.ok()) return status;
  return MakeFakePlan(target->tag());
}

absl::StatusOr<SourcePtr> FakeDataPath::PrepareSource(Sequence sequence, const SourceInput& input) {
  last_source_ = input;
  const Sequence before = living_source_.sequence();
  const bool stores = input.hidden != nullptr || input.route_weights != nullptr;
  if (stores) living_source_.Set(Sequence());
  if (absl::Status status = Run("prepare_source", sequence); !status.ok()) {
    if (!last_error().has_value()) living_source_.Set(before);
    return status;
  }
  living_source_.Set(sequence);
  if (input.plan.sequence != nullptr) WritePlan(*ReadPlan(nullptr), sequence, input.plan);
  return std::make_shared<const FakeSource>(
      ObjectTag{options_.buffer, options_.generation, sequence}, options_.rank, living_source_,
      input.token_count);
}

absl::StatusOr<PlanPtr> FakeDataPath::Materialise(Sequence sequence, const SourcePtr& source,
                                                  const DispatchOutput&) {
  if (absl::Status status = Run("materialise", sequence); !status.ok()) return status;
  return source->plan();
}

void FakeDataPath::DropTarget() {
  if (!std::exchange(has_target_, false)) return;
  std::lock_guard<std::mutex> lock(mutex_);
  calls_.push_back("drop_target");
}

absl::Status FakeDataPath::Barrier(Sequence sequence) { return Run("barrier", sequence); }
absl::Status FakeDataPath::ProbeCopy(CopyProbe probe, int64_t rows) {
  if (rows == 0) return Run("probe_copy of nothing", Sequence());
  return Run(probe == CopyProbe::kNextRank ? "probe_copy to next" : "probe_copy", Sequence());
}
absl::Status FakeDataPath::Decline(Sequence sequence) { return Run("decline", sequence); }

void FakeDataPath::Abort(int32_t lost_rank, const std::string& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  lost_rank_ = lost_rank;
  abort_reason_ = reason;
  changed_.notify_all();
}

void FakeDataPath::RequestCancel(bool wanted) {
  std::lock_guard<std::mutex> lock(mutex_);
  cancel_requested_ = wanted;
  changed_.notify_all();
}

absl::optional<ErrorRecord> FakeDataPath::last_error() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_error_;
}

BFloat16* FakeDataPath::rows() const {
  if (options_.shard_rows.empty()) return const_cast<BFloat16*>(rows_.data());
  return reinterpret_cast<BFloat16*>(options_.shard_rows[options_.rank.value]);
}

float* FakeDataPath::row_weights() const {
  if (options_.shard_rows.empty()) return const_cast<float*>(row_weights_.data());
  const ShardLayout layout = ShardLayout::Create(options_.geometry, options_.hidden);
  return reinterpret_cast<float*>(options_.shard_rows[options_.rank.value] +
                                  layout.row_weights_in_part());
}

absl::StatusOr<PlanTensors> FakeDataPath::ReadPlan(const PlanPtr&) const {
  const Geometry& geometry = options_.geometry;
  PlanTensors tensors;
  tensors.dst.assign(geometry.routes(), 0);
  tensors.cu_seqlens.assign(geometry.groups(), 0);
  tensors.zero_fill_ranges.assign(2 * geometry.groups(), 0);
  tensors.experts_to_copy.assign(geometry.ranks * geometry.slots, -1);
  tensors.load.assign(geometry.ranks, geometry.routes());
  tensors.home_load.assign(geometry.ranks, geometry.routes());
  tensors.remote_stats = {0, 0};
  return tensors;
}

}  // namespace perigee
