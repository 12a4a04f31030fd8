#include "worker/ops/objects.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

std::string Describe(const ObjectTag& tag) {
  return absl::StrCat("{buffer ", tag.buffer.value, ", generation ", tag.generation.value,
                      ", sequence ", tag.sequence.value, "}");
}

std::string DescribeRows(const ShardRows& rows) {
  switch (rows.state) {
    case RowsState::kNone:
      return "no rows: nothing was dispatched in this generation";
    case RowsState::kDispatched:
      return absl::StrCat("rows ", Describe(rows.tag), " of plan ", Describe(rows.plan));
    case RowsState::kExpertOutput:
      return absl::StrCat("expert output of rows ", Describe(rows.tag), " of plan ",
                          Describe(rows.plan));
    case RowsState::kConsumed:
      return absl::StrCat("rows ", Describe(rows.tag), ", consumed by the combine of sequence ",
                          rows.ended.value);
    case RowsState::kUndefined:
      return absl::StrCat("undefined rows: the operation of sequence ", rows.ended.value,
                          " that writes them ended early");
    case RowsState::kOverwritten:
      return absl::StrCat("rows that a copy after sequence ", rows.ended.value, " went over");
    case RowsState::kTarget:
      return absl::StrCat("the target ", Describe(rows.tag));
    case RowsState::kPrepared:
      return absl::StrCat("the target ", Describe(rows.tag), ", whose publication is prepared");
  }
  return "unknown rows";
}

}  // namespace

BufferObjects::BufferObjects(std::string buffer_name, BufferId buffer, Generation generation)
    : buffer_name_(std::move(buffer_name)), buffer_(buffer), generation_(generation) {}

std::string BufferObjects::DescribeLiving() const {
  return absl::StrCat(buffer_name_, " lives as {buffer ", buffer_.value, ", generation ",
                      generation_.value, ", sequence ", last_sequence_.value, "}");
}

absl::Status BufferObjects::CheckAlive(absl::string_view object, const ObjectTag& tag) const {
  if (tag.buffer == buffer_ && tag.generation == generation_) return absl::OkStatus();
  return StaleObject(absl::StrCat(object, " carries ", Describe(tag), "; ", DescribeLiving()));
}

absl::StatusOr<PlanPtr> BufferObjects::FindPlan(const std::string& name) const {
  const auto found = plans_.find(name);
  if (found == plans_.end()) {
    return StaleObject(absl::StrCat("there is no plan '", name, "' (", plans_.size(),
                                    " others are kept); ", DescribeLiving()));
  }
  absl::Status status = CheckAlive(absl::StrCat("plan '", name, "'"), found->second->tag());
  if (!status.ok()) return status;
  return found->second;
}

absl::Status BufferObjects::CheckPlanRoom(const std::string& name) const {
  if (plans_.count(name) > 0 || plans_.size() < kMaxPlans) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "plan '", name, "' cannot be kept: ", buffer_name_, " has ", kMaxPlans, " already"));
}

absl::Status BufferObjects::CheckRowsForExperts(const PlanHandle& plan, bool needs_weights) const {
  return CheckRows(plan, needs_weights, /*output_too=*/false);
}

absl::Status BufferObjects::CheckRowsForCombine(const PlanHandle& plan, bool needs_weights) const {
  return CheckRows(plan, needs_weights, /*output_too=*/true);
}

absl::Status BufferObjects::CheckRows(const PlanHandle& plan, bool needs_weights,
                                      bool output_too) const {
  absl::Status status = CheckAlive("the plan", plan.tag());
  if (!status.ok()) return status;
  const bool usable = rows_.state == RowsState::kDispatched ||
                      (output_too && rows_.state == RowsState::kExpertOutput);
  if (!usable || rows_.plan != plan.tag()) {
    return StaleObject(absl::StrCat("rows of plan ", Describe(plan.tag()),
                                    " are wanted; the shard holds ", DescribeRows(rows_)));
  }
  if (needs_weights && !rows_.has_weights) {
    return StaleObject(absl::StrCat("route weights are wanted; the shard holds ",
                                    DescribeRows(rows_), ", dispatched without"));
  }
  return absl::OkStatus();
}

absl::Status BufferObjects::CheckShardFree() const {
  if (rows_.state != RowsState::kPrepared) return absl::OkStatus();
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat("the shard holds ", DescribeRows(rows_),
                                                 ": nothing else may write it until then")),
      kReasonPublicationPending);
}

absl::StatusOr<TargetPtr> BufferObjects::FindTarget(const std::string& name) const {
  const bool lives = (rows_.state == RowsState::kTarget || rows_.state == RowsState::kPrepared) &&
                     target_ != nullptr && target_->tag() == rows_.tag;
  if (lives && name == target_name_) return target_;
  return StaleObject(absl::StrCat("there is no target '", name, "'; the shard holds ",
                                  DescribeRows(rows_), lives ? ", named '" : "",
                                  lives ? target_name_ + "'" : "", "; ", DescribeLiving()));
}

absl::StatusOr<std::string> BufferObjects::FindPreparedToken(const std::string& name) const {
  const absl::StatusOr<TargetPtr> target = FindTarget(name);
  if (!target.ok()) return target.status();
  if (rows_.state == RowsState::kPrepared) return token_;
  return StaleObject(absl::StrCat("the publication of target '", name, "' ",
                                  Describe((*target)->tag()), " is not prepared"));
}

void BufferObjects::KeepTarget(const std::string& name, TargetPtr target) {
  rows_ = ShardRows{RowsState::kTarget, target->tag(), ObjectTag(), false, Sequence()};
  target_name_ = name;
  target_ = std::move(target);
  token_.clear();
}

void BufferObjects::PublicationPrepared(std::string token, bool has_weights) {
  rows_.state = RowsState::kPrepared;
  rows_.has_weights = has_weights;
  token_ = std::move(token);
}

void BufferObjects::DropTarget() {
  if (rows_.state == RowsState::kTarget || rows_.state == RowsState::kPrepared) {
    RowsUndefined(rows_.tag.sequence);
  }
  target_.reset();
  token_.clear();
}

absl::StatusOr<SourcePtr> BufferObjects::FindSource(const std::string& name) const {
  const bool lives = source_.source != nullptr && source_.source->lives();
  if (lives && name == source_.name) return source_.source;
  const std::string other =
      lives ? absl::StrCat("'", source_.name, "' ", Describe(source_.source->tag()),
                           " is the one that lives")
            : std::string("none lives");
  return StaleObject(
      absl::StrCat("there is no source view '", name, "', ", other, "; ", DescribeLiving()));
}

void BufferObjects::KeepSource(const std::string& name, SourcePtr source) {
  source_ = {name, std::move(source)};
}

void BufferObjects::KeepLivingSource(absl::Span<const KeptSource> replaced) {
  const auto lives = [](const KeptSource& kept) {
    return kept.source != nullptr && kept.source->lives();
  };
  if (lives(source_)) return;
  const auto newest = std::find_if(replaced.rbegin(), replaced.rend(), lives);
  source_ = newest == replaced.rend() ? KeptSource() : *newest;
}

void BufferObjects::RowsDispatched(Sequence sequence, const ObjectTag& plan, bool has_weights) {
  rows_ = ShardRows{RowsState::kDispatched, ObjectTag{buffer_, generation_, sequence}, plan,
                    has_weights, Sequence()};
}

void BufferObjects::RowsComputed() { rows_.state = RowsState::kExpertOutput; }

void BufferObjects::RowsConsumed(Sequence sequence) {
  rows_.state = RowsState::kConsumed;
  rows_.ended = sequence;
}

void BufferObjects::RowsUndefined(Sequence sequence) {
  rows_.state = RowsState::kUndefined;
  rows_.ended = sequence;
}

void BufferObjects::RowsOverwritten(Sequence last) {
  rows_.state = RowsState::kOverwritten;
  rows_.ended = last;
}

void BufferObjects::NotePlanMade(const std::string& name, Sequence sequence) {
  // Names of plans that were never kept, too; slots are not taken to be filled for a forgotten one.
  if (plans_made_.size() >= kMaxPlans && plans_made_.count(name) == 0) plans_made_.clear();
  plans_made_[name] = sequence;
}

void BufferObjects::NoteSourceMade(const std::string& name, Sequence sequence) {
  source_noted_ = name;
  source_noted_at_ = sequence;
}

void BufferObjects::NoteMaterialised(const std::string& source, const std::string& plan,
                                     Sequence sequence) {
  const bool noted = source_noted_at_ != Sequence() && source == source_noted_;
  NotePlanMade(plan, noted ? source_noted_at_ : sequence);
}

BufferObjects::SlotUse BufferObjects::UseOf(const std::string& plan, int32_t layer,
                                            uint64_t version) const {
  const auto made = plans_made_.find(plan);
  return {made == plans_made_.end() ? Sequence() : made->second, layer, version};
}

void BufferObjects::NoteSlotsFilled(const std::string& plan, int32_t layer, uint64_t version) {
  slots_filled_ = UseOf(plan, layer, version);
}

bool BufferObjects::SlotsFilledFor(const std::string& plan, int32_t layer, uint64_t version) const {
  return plans_made_.count(plan) != 0 && slots_filled_ == UseOf(plan, layer, version);
}

void BufferObjects::ForgetPlan(const std::string& name) { plans_.erase(name); }

void BufferObjects::KeepPlan(const std::string& name, PlanPtr plan) {
  plans_[name] = std::move(plan);
}

void BufferObjects::Clear() {
  plans_.clear();
  rows_ = ShardRows();
  target_.reset();
  token_.clear();
  DropSource();
  NoteSourceMade("", Sequence());
  plans_made_.clear();
  ForgetSlots();
}

}  // namespace perigee
