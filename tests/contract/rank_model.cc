#include "tests/contract/rank_model.h"

#include <iterator>

namespace perigee {
namespace {

constexpr int kGenerationEvery = 300;  // commands

}  // namespace

void RankModel::Step() {
  cancels_ = Chance(20);
  path().RequestCancel(cancels_);
  const int kind = Draw(kGenerationEvery);
  if (kind == 0) return NewGeneration();
  using Command = void (RankModel::*)();
  constexpr Command kCommandsOf[] = {&RankModel::Dispatch,
                                     &RankModel::DispatchWithPlan,
                                     &RankModel::Prefetch,
                                     &RankModel::RunExperts,
                                     &RankModel::Combine,
                                     &RankModel::PrepareDispatch,
                                     &RankModel::PrepareDispatch,
                                     &RankModel::PreparePublication,
                                     &RankModel::PreparePublication,
                                     &RankModel::StoreRows,
                                     &RankModel::Publish,
                                     &RankModel::Publish,
                                     &RankModel::PrepareSource,
                                     &RankModel::Materialise,
                                     &RankModel::Materialise,
                                     &RankModel::LoadHome,
                                     &RankModel::Others,
                                     &RankModel::DispatchToSlot,
                                     &RankModel::DispatchToSlot,
                                     &RankModel::DispatchToSlot,
                                     &RankModel::DeclineSlot,
                                     &RankModel::RunExpertsOfSlot,
                                     &RankModel::RunExpertsOfSlot,
                                     &RankModel::RunExpertsOfSlot,
                                     &RankModel::RunExpertsOfSlot,
                                     &RankModel::CombineSlot,
                                     &RankModel::CombineSlot,
                                     &RankModel::CombineSlot,
                                     &RankModel::AcquireExpertOutput,
                                     &RankModel::ReleaseSlot,
                                     &RankModel::ReleaseSlot,
                                     &RankModel::ReadSlot,
                                     &RankModel::ProbeSlot,
                                     &RankModel::OthersOfSlots,
                                     &RankModel::ReduceGradients,
                                     &RankModel::ReduceGradients};
  (this->*kCommandsOf[kind % std::size(kCommandsOf)])();
}

DispatchInput RankModel::DrawInput(bool weighs) {
  const RankInput& input = shared_.inputs[Draw(kModelInputs)][rank_];
  return {input.hidden.data(), input.topk_experts.data(),
          weighs ? input.route_weights.data() : nullptr, kModelGeometry.tokens};
}

void RankModel::Dispatch() {
  const bool weighs = Chance(2);
  absl::StatusOr<PlanPtr> plan = path().Dispatch(next_, DrawInput(weighs), {});
  if (!AgreeAll("dispatch", plan.status(), CollectiveEnd(!prepared_))) return;
  Holds(*std::move(plan), weighs);
}

void RankModel::DispatchWithPlan() {
  const bool weighs = Chance(2);
  const int plan = DrawPlan();
  const absl::Status status = path().DispatchWithPlan(next_, HandleOf(plan), DrawInput(weighs), {});
  if (!AgreeAll("dispatch with plan", status, CollectiveEnd(Lives(plan) && !prepared_))) return;
  const bool kept = weights_ == plan;
  Overwritten();
  rows_ = plan;
  weights_ = weighs || kept ? plan : kNone;
}

void RankModel::Prefetch() {
  const int plan = DrawPlan();
  const Home wanted = {Draw(2), static_cast<uint64_t>(1 + Draw(2))};
  const ExpertWeights weights = shared_.store->WeightsOf(rank_, wanted.layer, wanted.version);
  const absl::Status status = path().PrefetchWeights(next_, HandleOf(plan), weights);
  Code expected = CollectiveEnd(Lives(plan));
  if (expected == Code::kOk) {
    const int slots = shared_.group->geometry().slots;
    for (int slot = 0; slot < slots; ++slot) {
      const int32_t expert = plans_[plan].tensors.experts_to_copy[rank_ * slots + slot];
      if (expert == kNone) continue;
      const bool fits = homes_[kModelGeometry.home_rank(expert)] == wanted;
      slots_[slot] = fits ? Slot{wanted, expert} : Slot();
      if (!fits) expected = Code::kFailedPrecondition;
    }
  }
  AgreeAll("prefetch", status, expected);
}

// Whether the homes and the slot that the plan's rows on this rank use hold what is wanted.
bool RankModel::WeightsFit(int plan, const Home& wanted) const {
  const PlanTensors& tensors = plans_[plan].tensors;
  int32_t begin = 0;
  const Geometry& geometry = shared_.group->geometry();
  for (int32_t group = 0; group < geometry.groups(); ++group) {
    const int32_t end = tensors.cu_seqlens[group];
    const bool used = end - begin > tensors.zero_fill_ranges[2 * group + 1];
    begin = end;
    if (!used) continue;
    if (group < geometry.experts) {
      if (homes_[geometry.home_rank(group)] != wanted) return false;
      continue;
    }
    const int32_t slot = group - geometry.experts;
    const int32_t expert = tensors.experts_to_copy[rank_ * geometry.slots + slot];
    if (slots_[slot].weights != wanted || slots_[slot].expert != expert) return false;
  }
  return true;
}

void RankModel::RunExperts() {
  const int plan = DrawPlan();
  const Home wanted = {Draw(2), static_cast<uint64_t>(1 + Draw(2))};
  const bool weighs = Chance(2);
  const bool in_place = Chance(2);
  std::vector<BFloat16> outside(static_cast<size_t>(kModelGeometry.logical_rows()) *
                                kModelShape.hidden);
  const RunExpertsInput input = {path().rows(), weighs ? path().row_weights() : nullptr,
                                 in_place ? path().rows() : outside.data()};
  const ExpertWeights weights = shared_.store->WeightsOf(rank_, wanted.layer, wanted.version);
  const absl::Status status = path().RunExperts(HandleOf(plan), weights, input);
  Code expected = Code::kInvalidArgument;
  if (Lives(plan) && rows_ == plan && (!weighs || weights_ == plan)) {
    expected = WeightsFit(plan, wanted) ? Code::kOk : Code::kFailedPrecondition;
  }
  Agree("run_experts", status, expected);
}

void RankModel::Combine() {
  const int plan = DrawPlan();
  const bool in_place = !Chance(3);
  const bool weighs = Chance(2);
  const std::vector<BFloat16> outside(static_cast<size_t>(kModelGeometry.logical_rows()) *
                                      kModelShape.hidden);
  std::vector<BFloat16> hidden(static_cast<size_t>(kModelGeometry.tokens) * kModelShape.hidden);
  std::vector<float> gathered(kModelGeometry.routes());
  const CombineInput input = {in_place ? path().rows() : outside.data(),
                              weighs ? path().row_weights() : nullptr};
  const absl::Status status = path().Combine(next_, HandleOf(plan), input,
                                             {hidden.data(), weighs ? gathered.data() : nullptr});
  const bool alive =
      Lives(plan) && !prepared_ && (!in_place || rows_ == plan) && (!weighs || weights_ == plan);
  AgreeAll("combine", status, CollectiveEnd(alive));
  if (alive) Overwritten();
}

void RankModel::PrepareDispatch() {
  const RankInput& input = shared_.inputs[Draw(kModelInputs)][rank_];
  absl::StatusOr<TargetPtr> target =
      publication().PrepareDispatch(next_, {input.topk_experts.data(), kModelGeometry.tokens});
  if (!AgreeAll("prepare_dispatch", target.status(), CollectiveEnd(!prepared_))) return;
  Overwritten();
  targets_.push_back({*std::move(target), shared_.generation});
  target_ = static_cast<int>(targets_.size()) - 1;
}

void RankModel::PreparePublication() {
  const int target = DrawRecent(targets_);
  const bool weighs = Chance(2);
  const std::vector<float>& weights = shared_.inputs[0][rank_].route_weights;
  const absl::Status status =
      publication().PreparePublication(TargetOf(target), weighs ? weights.data() : nullptr);
  const bool alive = IsTarget(target) && !prepared_;
  if (!Agree("prepare_publication", status, alive ? Code::kOk : Code::kInvalidArgument)) return;
  prepared_ = true;
  sends_weights_ = weighs;
}

void RankModel::StoreRows() {
  const int target = DrawRecent(targets_);
  const absl::Status status =
      publication().StoreRows(TargetOf(target), shared_.inputs[0][rank_].hidden.data());
  Agree("store_rows", status, IsTarget(target) ? Code::kOk : Code::kInvalidArgument);
}

void RankModel::Publish() {
  const int target = DrawRecent(targets_);
  absl::StatusOr<PlanPtr> plan = publication().Publish(next_, TargetOf(target), {});
  const bool alive = IsTarget(target) && prepared_;
  const bool sends = sends_weights_;
  const bool done = AgreeAll("publish", plan.status(), CollectiveEnd(alive));
  if (alive) Overwritten();
  if (done) Holds(*std::move(plan), sends);
}

void RankModel::PrepareSource() {
  const RankInput& input = shared_.inputs[Draw(kModelInputs)][rank_];
  const bool stores = Chance(2);
  absl::StatusOr<SourcePtr> made = source().PrepareSource(
      next_,
      {input.topk_experts.data(), kModelGeometry.tokens, stores ? input.hidden.data() : nullptr});
  // Also where it then ends early.
  if (stores) source_ = kNone;
  if (!AgreeAll("prepare_source", made.status(), CollectiveEnd(true))) return;
  Made((*made)->plan());
  sources_.push_back({*std::move(made), static_cast<int>(plans_.size()) - 1});
  source_ = static_cast<int>(sources_.size()) - 1;
}

void RankModel::Materialise() {
  const int view = Chance(2) ? source_ : DrawRecent(sources_);
  const SourcePtr handle = view == kNone ? nullptr : sources_[view].handle;
  absl::StatusOr<PlanPtr> plan = source().Materialise(next_, handle, {});
  const bool alive = view != kNone && view == source_ && !prepared_;
  if (!AgreeAll("materialise", plan.status(), CollectiveEnd(alive))) return;
  Overwritten();
  rows_ = weights_ = sources_[view].plan;
}

void RankModel::Others() {
  const int kind = Draw(5);
  if (kind == 0) {
    AgreeAll("barrier", path().Barrier(next_), CollectiveEnd(true));
  } else if (kind == 1) {
    const Sequence old(next_.value - 1 - (next_.value > 1 ? Draw(2) : 0));
    Agree("barrier of an old sequence", path().Barrier(old), Code::kInvalidArgument);
  } else if (kind == 2) {
    AgreeAll("decline", path().Decline(next_), Code::kOk);
  } else if (kind == 3) {
    publication().DropTarget();
    if (target_ != kNone) Overwritten();
  } else if (Agree("probe_copy", path().ProbeCopy(CopyProbe::kOwnShard, 1),
                   prepared_ ? Code::kInvalidArgument : Code::kOk)) {
    Overwritten();
  }
}

void RankModel::LoadHome() {
  const int32_t home = Draw(kModelGeometry.ranks);
  const Home now = {Draw(2), static_cast<uint64_t>(1 + Draw(2))};
  shared_.meeting.arrive_and_wait();
  if (rank_ == 0) shared_.store->SetHeader(home, now.layer, now.version);
  homes_[home] = now;
  shared_.meeting.arrive_and_wait();
}

void RankModel::NewGeneration() {
  shared_.meeting.arrive_and_wait();
  old_plan_ = static_cast<int>(plans_.size()) - 1;
  if (rank_ == 0 && !shared_.failed) shared_.Renew();
  shared_.meeting.arrive_and_wait();
  next_ = Sequence(1);
  Overwritten();
  source_ = kNone;
  MeetOtherBuffer();
}

}  // namespace perigee
