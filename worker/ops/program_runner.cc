#include "worker/ops/program_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/ops/failure_reason.h"
#include "worker/ops/program_check.h"
#include "worker/ops/ring_check.h"

namespace perigee {
namespace {

// Where operations queue: so many that the device never waits for this thread, and so few that a
// program soon hears of a failure.
constexpr int32_t kOperationsAtATime = 48;
// Of iterations that are timed: most of them begin right behind another.
constexpr int32_t kTimedIterationsAtATime = 4;

}  // namespace

ProgramRunner::ProgramRunner(const GroupView& group, const ProgramSite& site,
                             const ProgramOrder& order, const Clock& clock,
                             const ProgramEvents& events)
    : group_(group),
      site_(site),
      order_(order),
      clock_(clock),
      events_(events),
      launcher_(site),
      next_sequence_(order.first_sequence),
      last_report_(clock.Monotonic()) {}

ProgramOutcome ProgramRunner::Run() {
  if (absl::Status status = Prepare(); !status.ok()) {
    failure_ = Failure{status, absl::nullopt};
    return Outcome();
  }
  absl::Status outputs = launcher_.TakeOutputs(order_.program, order_.program_id);
  // The other ranks know nothing of it: the first collective operation is declined.
  if (!outputs.ok()) failure_ = Failure{outputs, absl::nullopt};
  const int32_t iterations = std::max(1, order_.program.iterations());
  const int32_t at_a_time = IterationsAtATime();
  if (order_.program.time_iterations()) site_.data_path.set_timing(Timing::kMarks);
  for (int32_t first = 0; first < iterations; first += at_a_time) {
    RunIterations(std::min(at_a_time, iterations - first));
    Settle();
    if (failure_ && others_know_) break;
  }
  site_.data_path.set_timing(Timing::kOperations);
  if (failure_) launcher_.GiveUp();
  if (failure_ && others_know_) site_.objects.ForgetSlots();
  return Outcome();
}

void ProgramRunner::RunIterations(int32_t count) {
  const bool by_clock = order_.program.time_iterations() && !site_.data_path.queues();
  for (int32_t i = 0; i < count; ++i) {
    MarkTime();
    const absl::Duration begin = clock_.Monotonic();
    for (int index = 0; index < order_.program.operations_size(); ++index) {
      if (beside_ && waits_.Waits(index, *beside_)) Join();
      if (!Step(index)) return;
    }
    if (beside_) Join();
    if (by_clock && !failure_) {
      iteration_ns_.push_back(absl::ToInt64Nanoseconds(clock_.Monotonic() - begin));
    }
  }
  MarkTime();
}

// A mark that fails is as an operation that this rank alone cannot launch.
void ProgramRunner::MarkTime() {
  if (!order_.program.time_iterations() || !site_.data_path.queues() || failure_) return;
  absl::Status status = site_.data_path.MarkTime();
  if (!status.ok()) failure_ = Failure{std::move(status), absl::nullopt};
}

// The same on every rank: a rank that fails declines what the others have launched.
int32_t ProgramRunner::IterationsAtATime() const {
  if (!site_.data_path.queues()) return 1;
  const int32_t least = order_.program.time_iterations() ? kTimedIterationsAtATime : 1;
  return std::max(least, kOperationsAtATime / order_.program.operations_size());
}

absl::Status ProgramRunner::Prepare() {
  if (absl::Status status = CheckProgram(order_.program, site_.shape); !status.ok()) return status;
  if (absl::Status status = CheckRings(order_.program, site_.shape); !status.ok()) return status;
  if (order_.first_sequence <= site_.objects.last_sequence()) {
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          "the program begins at sequence ", order_.first_sequence.value,
                          ", sequence ", site_.objects.last_sequence().value, " is used already")),
                      kReasonOutOfStep);
  }
  absl::StatusOr<ProgramWaits> waits = ProgramWaits::Create(order_.program);
  if (!waits.ok()) return waits.status();
  waits_ = *std::move(waits);
  for (int index = 0; index < order_.program.operations_size(); ++index) {
    v1::OperationTiming& timing = timings_.emplace_back();
    timing.set_operation_index(index);
    timing.set_operation(OperationName(order_.program.operations(index)));
  }
  return absl::OkStatus();
}

bool ProgramRunner::Step(int index) {
  const v1::ProgramOperation& operation = order_.program.operations(index);
  const absl::Duration begin = clock_.Monotonic();
  if (!Refetches(operation)) {
    const bool joins = operation.has_prefetch_weights() && RunsBeside(index);
    return Launch(operation, index, joins ? Part::kBegin : Part::kAll, begin);
  }
  v1::ProgramOperation fetch;
  fetch.mutable_prefetch_weights()->set_plan(operation.run_experts().plan());
  fetch.mutable_prefetch_weights()->set_layer(operation.run_experts().layer());
  fetch.mutable_prefetch_weights()->set_weights_version(operation.run_experts().weights_version());
  return Launch(fetch, index, Part::kBegin, begin) && Launch(operation, index, Part::kEnd, begin);
}

bool ProgramRunner::Refetches(const v1::ProgramOperation& operation) const {
  if (!site_.shape.refetch || site_.shape.geometry.slots == 0 || !operation.has_run_experts()) {
    return false;
  }
  const v1::RunExpertsOperation& run = operation.run_experts();
  return !site_.objects.SlotsFilledFor(run.plan(), run.layer(), run.weights_version());
}

void ProgramRunner::Note(const v1::ProgramOperation& operation, Sequence sequence) {
  if (operation.has_dispatch() && operation.dispatch().saved_plan().empty()) {
    site_.objects.NotePlanMade(operation.dispatch().plan(), sequence);
  }
  if (operation.has_publish()) site_.objects.NotePlanMade(operation.publish().plan(), sequence);
  if (operation.has_prepare_source()) {
    const v1::PrepareSourceOperation& prepare = operation.prepare_source();
    site_.objects.NoteSourceMade(prepare.source(), sequence);
    if (!prepare.plan().empty()) site_.objects.NotePlanMade(prepare.plan(), sequence);
  }
  if (operation.has_materialise()) {
    const v1::MaterialiseOperation& materialise = operation.materialise();
    site_.objects.NoteMaterialised(materialise.source(), materialise.plan(), sequence);
  }
  if (!operation.has_prefetch_weights()) return;
  const v1::PrefetchWeightsOperation& prefetch = operation.prefetch_weights();
  site_.objects.NoteSlotsFilled(prefetch.plan(), prefetch.layer(), prefetch.weights_version());
}

bool ProgramRunner::Launch(const v1::ProgramOperation& operation, int index, Part part,
                           absl::Duration begin) {
  const bool collective = IsCollective(operation, site_.transport);
  if (!collective && failure_) return true;
  const Sequence sequence = collective ? TakeSequence() : Sequence();
  Note(operation, sequence);
  if (failure_) return DeclineAt(operation, sequence);
  const bool beside = RunsBeside(index);
  const bool enters = collective && operation.has_probe_copy();
  Failure failure = enters ? launcher_.EnterProbe(sequence) : Failure();
  const bool entered = enters && failure.status.ok();
  if (entered) begin = clock_.Monotonic();  // the copy alone is measured
  if (failure.status.ok()) failure = launcher_.Launch(operation, sequence, beside);
  if (failure.status.ok()) {
    if (site_.data_path.queues()) {
      running_.push_back({index, collective, part});
      if (part == Part::kBegin && beside) beside_ = index;
    } else if (part != Part::kBegin) {
      if (!order_.program.time_iterations()) Measure(index, clock_.Monotonic() - begin);
      Count(index);
    }
    return true;
  }
  failure_ = std::move(failure);
  if (!collective) return true;
  if (entered && !failure_->record) return true;  // the sequence is used
  if (!failure_->record) return DeclineAt(operation, sequence);
  // Found by this rank alone: the others have gone on to the next operation.
  if (failure_->record->reason == static_cast<uint32_t>(AbortReason::kStaleWeights)) return true;
  others_know_ = true;
  return false;
}

// Where nothing queues, what could run beside has ended with the call.
bool ProgramRunner::RunsBeside(int index) const {
  const v1::ProgramOperation& operation = order_.program.operations(index);
  const bool may = operation.has_prefetch_weights() || operation.has_prepare_publication();
  if (!site_.data_path.queues() || !may) return false;
  const auto& operations = order_.program.operations();
  if (index + 1 < operations.size() && !waits_.Waits(index + 1, index)) return true;
  // Beside what is left of the dispatch that makes its plan.
  if (!order_.program.ordered_by_waits() || index == 0) return false;
  const v1::DispatchOperation& before = operations[index - 1].dispatch();
  return !before.plan().empty() && before.plan() == operation.prefetch_weights().plan();
}

void ProgramRunner::Join() {
  const int index = *std::exchange(beside_, absl::nullopt);
  if (failure_) return;
  Failure failure = launcher_.Join();
  if (failure.status.ok()) {
    running_.push_back({index, /*collective=*/false, Part::kEnd});
  } else {
    failure_ = std::move(failure);
  }
}

void ProgramRunner::Settle() {
  if (!site_.data_path.queues()) return;
  const std::vector<Running> running = std::exchange(running_, {});
  Failure failure = launcher_.Settle();
  const std::vector<absl::Duration> durations = site_.data_path.durations();
  const size_t ended = std::min(site_.data_path.operations_ended(), running.size());
  const bool iterations = order_.program.time_iterations();
  for (size_t i = 0; iterations && i < durations.size(); ++i) {
    iteration_ns_.push_back(absl::ToInt64Nanoseconds(durations[i]));
  }
  absl::Duration begun;
  for (size_t i = 0; i < ended; ++i) {
    const bool measured = !iterations && i < durations.size();
    if (running[i].part == Part::kBegin) {
      if (measured) begun = durations[i];
      continue;
    }
    const absl::Duration before = running[i].part == Part::kEnd ? begun : absl::ZeroDuration();
    if (measured) Measure(running[i].index, before + durations[i]);
    Count(running[i].index);
  }
  if (failure.status.ok()) return;
  // It came before what this rank has refused since, or is that the others could not be told of it.
  if (failure_ && !failure_->record && failure.record) {
    failure.status = absl::Status(
        failure.status.code(),
        absl::StrCat(std::string(failure.status.message()),
                     "; this rank had refused an operation: ", failure_->status.message()));
  }
  failure_ = std::move(failure);
  const bool alone = !failure_->record ||
                     failure_->record->reason == static_cast<uint32_t>(AbortReason::kStaleWeights);
  // What was queued behind it has been declined in its turn, which tells the others.
  const bool told = ended < running.size() &&
                    std::any_of(running.begin() + ended + 1, running.end(),
                                [](const Running& operation) { return operation.collective; });
  others_know_ = others_know_ || told || !alone;
}

Sequence ProgramRunner::TakeSequence() {
  const Sequence sequence = next_sequence_;
  next_sequence_ = sequence.Next();
  site_.objects.UseSequence(sequence);
  return sequence;
}

// When the others could not be told, that is the graver failure. Where operations queue, the others
// have queued the rest before they hear of it, and wait at each: so it is declined
// one by one.
bool ProgramRunner::DeclineAt(const v1::ProgramOperation& operation, Sequence sequence) {
  others_know_ = true;
  const Failure decline = launcher_.Decline(operation, sequence);
  if (decline.status.ok()) return site_.data_path.queues();
  const std::string message =
      absl::StrCat(decline.status.message(),
                   "; this rank had refused the operation: ", failure_->status.message());
  failure_ = Failure{absl::Status(decline.status.code(), message), decline.record};
  return false;
}

void ProgramRunner::Measure(int index, absl::Duration duration) {
  const int64_t ns = absl::ToInt64Nanoseconds(duration);
  v1::OperationTiming& timing = timings_[index];
  timing.set_min_ns(timing.count() == 0 ? ns : std::min<int64_t>(timing.min_ns(), ns));
  timing.set_max_ns(std::max<int64_t>(timing.max_ns(), ns));
  timing.set_total_ns(timing.total_ns() + ns);
  if (order_.program.keep_durations()) durations_ns_[index].push_back(ns);
}

void ProgramRunner::Count(int index) {
  timings_[index].set_count(timings_[index].count() + 1);
  if (events_.on_operation_done) events_.on_operation_done();
  ReportProgress();
  if (index + 1 == order_.program.operations_size()) ++iterations_done_;
}

void ProgramRunner::ReportProgress() {
  if (order_.progress_interval <= absl::ZeroDuration() || !events_.on_progress) return;
  const absl::Duration now = clock_.Monotonic();
  if (now - last_report_ < order_.progress_interval) return;
  last_report_ = now;
  events_.on_progress(Progress());
}

v1::ProgramProgress ProgramRunner::Progress() const {
  v1::ProgramProgress progress;
  progress.set_program_id(order_.program_id);
  progress.set_group(group_.group);
  progress.set_rank(group_.rank.value);
  progress.set_iterations_done(iterations_done_);
  progress.set_last_sequence(site_.objects.last_sequence().value);
  for (const v1::OperationTiming& timing : timings_) *progress.add_timings() = timing;
  if (absl::optional<v1::PlanSummary> plan = launcher_.SummariseLastPlan()) {
    *progress.mutable_plan() = *std::move(plan);
  }
  return progress;
}

ProgramOutcome ProgramRunner::Outcome() const {
  ProgramOutcome outcome{ToRankStatus(group_, failure_.value_or(Failure())), Progress()};
  for (const auto& [index, durations] : durations_ns_) {
    outcome.progress.mutable_timings(index)->mutable_duration_ns()->Add(durations.begin(),
                                                                        durations.end());
  }
  outcome.progress.mutable_iteration_ns()->Add(iteration_ns_.begin(), iteration_ns_.end());
  return outcome;
}

}  // namespace perigee
