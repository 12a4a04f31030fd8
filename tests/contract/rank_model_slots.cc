// The commands of RankModel on slots of rings (kernels/buffer_rings.h).
#include <algorithm>
#include <iterator>

#include "tests/contract/model_words.h"
#include "tests/contract/rank_model.h"

namespace perigee {
namespace {

// Where the experts of a slot write to.
enum ExpertsTo { kToSlot, kToShard, kToOutside, kToItself, kToOtherSlot };

}  // namespace

void RankModel::DispatchToSlot() {
  const bool weighs = Chance(2);
  const bool plans = !Chance(3);
  const int old = DrawPlan();
  const DispatchInput input = DrawInput(weighs);
  Ring& ring = RingOf(kDispatch);
  // Whoever reads has ended, or the dispatch would wait.
  if (ring.last[ring.next] != kNone) PassWord(ring.taken[ring.last[ring.next]]);
  Verdict expected = AcquireEnd(kDispatch);
  if (prepared_) expected = {Code::kInvalidArgument, kPrepared};
  const bool takes = expected.code == Code::kOk;
  if (takes && !plans) expected = PlanEnd(old);
  if (expected.code == Code::kOk && cancels_) expected = {Code::kCancelled, kCancel};
  const Sequence sequence = next_;
  absl::StatusOr<SlotDispatched> made = SlotDispatched{HandleOf(old), {}};
  if (plans) {
    made = rings().Dispatch(sequence, input, {});
  } else {
    const auto slot = rings().DispatchWithPlan(sequence, HandleOf(old), input);
    if (slot.ok()) made->slot = *slot;
    if (!slot.ok()) made = slot.status();
  }
  if (!AgreeSaying("dispatch to a slot", made.status(), expected, /*collective=*/true)) {
    if (takes) Undone(kDispatch);
    return;
  }
  if (plans) Made(made->plan);
  const int plan = plans ? static_cast<int>(plans_.size()) - 1 : old;
  Acquired(made->slot, sequence.value, plan, weighs ? plan : kNone);
  if (target_ != kNone) Overwritten();
}

// One rank has none left, or no input: it declines, and the others' slots are as before.
void RankModel::DeclineSlot() {
  path().RequestCancel(false);
  const int declining = Draw(kModelGeometry.ranks);
  const DispatchInput input = DrawInput(false);
  Ring& ring = RingOf(kDispatch);
  if (ring.last[ring.next] != kNone) PassWord(ring.taken[ring.last[ring.next]]);
  Verdict expected = AcquireEnd(kDispatch);
  if (prepared_) expected = {Code::kInvalidArgument, kPrepared};
  if (rank_ == declining || expected.code != Code::kOk) {
    if (expected.code != Code::kOk) {
      const absl::Status refused = rings().Dispatch(next_, input, {}).status();
      if (!AgreeSaying("dispatch to a slot", refused, expected, true) && shared_.failed) return;
    }
    AgreeAll("decline", path().Decline(next_), Code::kOk);
    return;
  }
  expected = {Code::kFailedPrecondition, kDeclined};
  const absl::Status failed = rings().Dispatch(next_, input, {}).status();
  AgreeSaying("dispatch to a slot", failed, expected, true);
  Undone(kDispatch);
}

RankModel::Verdict RankModel::ExpertsEnd(const RingSlot& slot, int plan, bool weighs, int to,
                                         bool fits) {
  if (slot.ring.kind != kDispatch) return {Code::kInvalidArgument, kNotADispatch};
  const Verdict of_slot = SlotEnd(slot);
  if (of_slot.code != Code::kOk) return of_slot;
  const Verdict of_plan = PlanEnd(plan);
  if (to == kToSlot) {
    if (of_plan.code != Code::kOk) return of_plan;
    if (AcquireEnd(kExpert).code != Code::kOk) return AcquireEnd(kExpert);
  }
  if (to == kToItself) return {Code::kInvalidArgument, kItself};
  if (of_plan.code != Code::kOk) return of_plan;
  const Taken& taken = *Find(slot);
  if (taken.plan != plan || (weighs && taken.weights != plan)) {
    return {Code::kInvalidArgument, kOtherPlan};
  }
  if (to == kToOtherSlot) return {Code::kInvalidArgument, kInShard};
  if (to == kToShard && prepared_) return {Code::kInvalidArgument, kPrepared};
  if (!fits) return {Code::kFailedPrecondition, kStale};
  return {};
}

// Null: of a slot of its own.
BFloat16* RankModel::OutputOf(const RingSlot& slot, int to, std::vector<BFloat16>& outside) {
  if (to == kToSlot) return nullptr;
  if (to == kToShard) return path().rows();
  if (to == kToOutside) return outside.data();
  if (to == kToOtherSlot) return path().rows() + kModelShape.hidden;
  const auto memory = rings().MemoryOf(slot);
  return memory.ok() ? memory->rows : outside.data();
}

void RankModel::RunExpertsOfSlot() {
  const RingSlot slot = DrawSlot(kDispatch);
  int plan = DrawPlanOf(slot);
  Home wanted = {Draw(2), static_cast<uint64_t>(1 + Draw(2))};
  const int home = Draw(3);
  if (home < kModelGeometry.ranks) wanted = homes_[home];
  bool weighs = Chance(4);
  bool keeps = Chance(3);
  constexpr ExpertsTo kDraws[] = {kToSlot,  kToSlot,    kToSlot,   kToSlot,     kToShard,
                                  kToShard, kToOutside, kToItself, kToOtherSlot};
  ExpertsTo to = kDraws[Draw(std::size(kDraws))];
  const bool disturbs = Chance(2);
  if (disturbs && prepared_ && Find(slot) != nullptr) {
    plan = Find(slot)->plan;
    weighs = false;
    to = kToShard;
  }
  const bool fits = Lives(plan) && WeightsFit(plan, wanted);
  // What is local changes nothing where it fails on a rank alone, so that all take the same slots.
  if (!SayTheSame(fits)) {
    keeps = true;
    if (to == kToSlot || to == kToShard) to = kToOutside;
  }
  std::vector<BFloat16> outside(SlotElements());
  const Verdict expected = ExpertsEnd(slot, plan, weighs, to, fits);
  const bool takes = to == kToSlot && (expected.code == Code::kOk || expected.words == kOtherPlan ||
                                       expected.code == Code::kFailedPrecondition);
  const absl::StatusOr<RingSlot> output = rings().RunExperts(
      slot, HandleOf(plan), shared_.store->WeightsOf(rank_, wanted.layer, wanted.version),
      {weighs, OutputOf(slot, to, outside), keeps});
  if (!AgreeSaying("experts of a slot", output.status(), expected, false)) {
    if (takes) Undone(kExpert);
    return;
  }
  EXPECT_EQ(output->identity != 0, takes) << text_;
  if (takes) Acquired(*output, 0, plan, kNone);
  if (to == kToShard) {
    const int weights = weights_;
    Overwritten();
    rows_ = plan;
    weights_ = weights;
  }
  if (!keeps) Released(slot, true);
}

void RankModel::CombineSlot() {
  const RingSlot slot = DrawSlot(kExpert);
  const int plan = DrawPlanOf(slot);
  const bool weighs = Chance(2);
  const std::vector<float> weights(kModelGeometry.logical_rows());
  std::vector<BFloat16> hidden(static_cast<size_t>(kModelGeometry.tokens) * kModelShape.hidden);
  std::vector<float> gathered(kModelGeometry.routes());
  Verdict expected = SlotEnd(slot);
  if (slot.ring.kind != kExpert) {
    expected = {Code::kInvalidArgument, kNotAnExpert};
  }
  // That a plan is dead may be told as that it is another one.
  if (expected.code == Code::kOk && !Lives(plan)) expected = {Code::kInvalidArgument, kSomePlan};
  if (expected.code == Code::kOk && Find(slot)->plan != plan) {
    expected = {Code::kInvalidArgument, kOtherPlan};
  }
  if (expected.code == Code::kOk && prepared_) expected = {Code::kInvalidArgument, kPrepared};
  const bool alive = expected.code == Code::kOk;
  const bool disturbs = Chance(6);
  if (disturbs) path().RequestCancel(true);
  if (alive && (cancels_ || disturbs)) expected = {Code::kCancelled, kCancel};
  const absl::Status status =
      rings().Combine(next_, HandleOf(plan), slot, weighs ? weights.data() : nullptr,
                      {hidden.data(), weighs ? gathered.data() : nullptr});
  const bool done = AgreeSaying("combine of a slot", status, expected, true);
  if (alive) Overwritten();
  if (done) Released(slot, true);
}

void RankModel::AcquireExpertOutput() {
  const int plan = DrawPlan();
  Verdict expected = PlanEnd(plan);
  if (expected.code == Code::kOk) expected = AcquireEnd(kExpert);
  const auto slot = rings().AcquireExpertOutput(HandleOf(plan));
  if (AgreeSaying("acquire", slot.status(), expected, false)) Acquired(*slot, 0, plan, kNone);
}

void RankModel::ReleaseSlot() {
  const RingSlot slot = DrawSlot(Chance(2) ? kDispatch : kExpert);
  Verdict expected = SlotEnd(slot);
  if (Chance(2)) {
    if (AgreeSaying("release", rings().Release(slot), expected, false)) Released(slot, true);
    return;
  }
  if (slot.ring.kind != kDispatch) {
    expected = {Code::kInvalidArgument, kNotADispatch};
  }
  const auto word = rings().ReleaseByWord(slot);
  if (!AgreeSaying("release by a word", word.status(), expected, false)) return;
  Released(slot, false);
  Find(slot)->word = *word;
  // As its last read ends when nobody waits for it.
  if (Chance(2)) PassWord(*Find(slot));
}

void RankModel::ReadSlot() {
  const RingSlot slot = DrawSlot(Chance(2) ? kDispatch : kExpert);
  const auto memory = rings().MemoryOf(slot);
  if (!AgreeSaying("memory", memory.status(), SlotEnd(slot), false)) return;
  const std::vector<BFloat16>& rows = Find(slot)->rows;
  EXPECT_TRUE(std::equal(rows.begin(), rows.end(), memory->rows)) << text_ << "others' rows";
  EXPECT_EQ(memory->row_weights != nullptr, slot.ring.kind == kDispatch) << text_;
}

void RankModel::ProbeSlot() {
  const RingSlot slot = DrawSlot(Chance(2) ? kDispatch : kExpert);
  const Verdict end = SlotEnd(slot);
  SlotState expected = SlotState::kAcquired;
  if (end.words == kForeign) expected = SlotState::kForeign;
  if (end.words == kOver) expected = SlotState::kOver;
  if (end.words == kReleasedAlready) {
    expected = Find(slot)->passed ? SlotState::kFree : SlotState::kReleased;
  }
  EXPECT_EQ(rings().Probe(slot), expected) << text_;
  for (const RingKind kind : {kDispatch, kExpert}) {
    const Ring& ring = RingOf(kind);
    EXPECT_EQ(rings().next(kind), ring.next) << text_;
    EXPECT_EQ(rings().acquired(kind),
              std::count_if(ring.last.begin(), ring.last.end(),
                            [&](int last) { return last != kNone && !ring.taken[last].released; }))
        << text_;
  }
}

void RankModel::OthersOfSlots() {
  if (!Chance(6)) {
    const RingSlot slot = DrawSlot(kDispatch);
    Verdict expected = SlotEnd(slot);
    if (slot.ring.kind != kDispatch) {
      expected = {Code::kInvalidArgument, kNotADispatch};
    }
    if (expected.code == Code::kOk) expected = {Code::kUnimplemented, kNoStreams};
    const absl::Status status = rings().ReleaseOnStream(slot, nullptr);
    AgreeSaying("release on a stream", status, expected, false);
    return;
  }
  AgreeSaying("release all", rings().ReleaseAll(), {}, false);
  for (Ring& ring : rings_) {
    for (const int last : ring.last) {
      if (last != kNone && !ring.taken[last].released) Released(ring.taken[last].slot, true);
    }
  }
}

}  // namespace perigee
