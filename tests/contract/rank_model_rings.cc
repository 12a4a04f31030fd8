// What RankModel knows of its rings: which acquisition has which slot, and what is refused for it.
#include <algorithm>
#include <utility>

#include "tests/contract/model_words.h"
#include "tests/contract/rank_model.h"

namespace perigee {

const std::vector<RankModel::Ending>& RankModel::Endings() {
  static const auto& endings = *new std::vector<Ending>([] {
    std::vector<Ending> made = {
        {"dispatch to a slot", ""},
        {"dispatch to a slot", kNotReleased},
        {"dispatch to a slot", kPrepared},
        {"dispatch to a slot", kPlan},
        {"dispatch to a slot", kOtherBuffer},
        {"dispatch to a slot", kCancel},
        {"dispatch to a slot", kDeclined},
        {"experts of a slot", ""},
        {"experts of a slot", kNotADispatch},
        {"experts of a slot", kNotReleased},
        {"experts of a slot", kItself},
        {"experts of a slot", kInShard},
        {"experts of a slot", kPrepared},
        {"experts of a slot", kPlan},
        {"experts of a slot", kOtherBuffer},
        {"experts of a slot", kOtherPlan},
        {"experts of a slot", kStale},
        {"combine of a slot", ""},
        {"combine of a slot", kNotAnExpert},
        {"combine of a slot", kPrepared},
        {"combine of a slot", kSomePlan},
        {"combine of a slot", kOtherPlan},
        {"combine of a slot", kCancel},
        {"acquire", ""},
        {"acquire", kPlan},
        {"acquire", kOtherBuffer},
        {"acquire", kNotReleased},
        {"release", ""},
        {"release by a word", ""},
        {"release by a word", kNotADispatch},
        {"memory", ""},
        {"release on a stream", kNoStreams},
        {"release all", ""},
        {"reduce gradients", ""},
        {"reduce gradients", kSums},
        {"reduce gradients", kPlan},
        {"reduce gradients", kOtherBuffer},
        {"reduce gradients", kFewSlots},
        {"reduce gradients", kCancel},
    };
    for (const char* what :
         {"experts of a slot", "combine of a slot", "release", "release by a word", "memory"}) {
      for (const char* words : {kOver, kForeign, kReleasedAlready}) made.push_back({what, words});
    }
    return made;
  }());
  return endings;
}

bool RankModel::AgreeSaying(const char* what, const absl::Status& status, const Verdict& expected,
                            bool collective) {
  ++seen_[{what, expected.words}];
  if (status.code() == expected.code &&
      std::string(status.message()).find(expected.words) == std::string::npos) {
    ADD_FAILURE() << text_ << what << " ended with " << status << ", the model says that it says '"
                  << expected.words << "'";
    shared_.Stop();
    return false;
  }
  return collective ? AgreeAll(what, status, expected.code) : Agree(what, status, expected.code);
}

// A new generation: its rings are empty, and another buffer has a plan and a slot in it.
void RankModel::MeetOtherBuffer() {
  for (const RingKind kind : {kDispatch, kExpert}) {
    const int slots = kind == kDispatch ? kModelRings.dispatch_slots : kModelRings.expert_slots;
    RingOf(kind) = {{}, std::vector<int>(slots, kNone), 0};
  }
  if (shared_.failed) return;
  const RankInput& input = shared_.inputs[0][rank_];
  const auto made = shared_.other->path(rank_).rings()->Dispatch(
      Sequence(1), {input.hidden.data(), input.topk_experts.data(), nullptr, kModelGeometry.tokens},
      {});
  ASSERT_TRUE(made.ok()) << made.status();
  other_plan_ = made->plan;
  other_slot_ = made->slot;
}

// Whether all ranks say the same; they meet.
bool RankModel::SayTheSame(bool word) {
  auto& said = shared_.said[++meetings_ % 2];
  said[rank_] = word;
  shared_.meeting.arrive_and_wait();
  return std::all_of(said.begin(), said.end(), [&](bool other) { return other == word; });
}

// Mostly one that was taken lately; else one that is nobody's.
RingSlot RankModel::DrawSlot(RingKind kind) {
  const std::vector<Taken>& taken = RingOf(kind).taken;
  const int size = static_cast<int>(taken.size());
  RingSlot slot = {OwnRing(kind), 0, 1};
  // Of two the one that has its slot: each outcome is to be as frequent as the others.
  for (int i = 0; i < 2 && size > 0; ++i) {
    const RingSlot drawn = taken[size - 1 - Draw(std::min(size, 5))].slot;
    if (i == 0 || SlotEnd(slot).code != Code::kOk) slot = drawn;
  }
  const int spoilt = Draw(20);
  if (spoilt == 0) slot.ring.rank = RankId((rank_ + 1) % kModelGeometry.ranks);
  if (spoilt == 1) slot.ring.generation = Generation(shared_.generation - 1);
  if (spoilt == 2) slot = other_slot_;
  if (spoilt == 3) slot.identity += 1'000'000;
  if (spoilt == 4) slot.index = kModelRings.dispatch_slots;
  if (spoilt == 5) slot.ring.kind = kind == kDispatch ? kExpert : kDispatch;
  return slot;
}

// Mostly the plan by which its rows lie.
int RankModel::DrawPlanOf(const RingSlot& slot) {
  const int drawn = DrawPlan();
  const bool takes_drawn = Chance(2);  // drawn on every rank, whatever it has
  const Taken* const taken = Find(slot);
  return taken == nullptr || takes_drawn ? drawn : taken->plan;
}

// The acquisition, where no other has the slot since.
RankModel::Taken* RankModel::Find(const RingSlot& slot) {
  Ring& ring = RingOf(slot.ring.kind);
  if (slot.ring != OwnRing(slot.ring.kind)) return nullptr;
  if (slot.index < 0 || slot.index >= static_cast<int>(ring.last.size())) return nullptr;
  const int last = ring.last[slot.index];
  return last != kNone && ring.taken[last].slot == slot ? &ring.taken[last] : nullptr;
}

// Whether the acquisition has the slot.
RankModel::Verdict RankModel::SlotEnd(const RingSlot& slot) {
  const int slots = static_cast<int>(RingOf(slot.ring.kind).last.size());
  if (slot.ring != OwnRing(slot.ring.kind) || slot.index < 0 || slot.index >= slots) {
    return {Code::kInvalidArgument, kForeign};
  }
  const Taken* const taken = Find(slot);
  if (taken == nullptr) return {Code::kInvalidArgument, kOver};
  if (taken->released) return {Code::kInvalidArgument, kReleasedAlready};
  return {};
}

RankModel::Verdict RankModel::AcquireEnd(RingKind kind) {
  const Ring& ring = RingOf(kind);
  const int last = ring.last[ring.next];
  if (last == kNone || ring.taken[last].released) return {};
  return {Code::kResourceExhausted, kNotReleased};
}

RankModel::Verdict RankModel::PlanEnd(int plan) const {
  if (Lives(plan)) return {};
  return {Code::kInvalidArgument, plan == kOther ? kOtherBuffer : kPlan};
}

// It is told how the slot is named, and what lies there until it is released.
void RankModel::Acquired(const RingSlot& slot, uint64_t identity, int plan, int weights) {
  const RingKind kind = slot.ring.kind;
  Ring& ring = RingOf(kind);
  EXPECT_EQ(slot.ring, OwnRing(kind)) << text_;
  EXPECT_EQ(slot.index, ring.next) << text_;
  // Of expert-output slots the count grows, also where nothing came of it.
  if (kind == kDispatch) {
    EXPECT_EQ(slot.identity, identity) << text_;
  } else {
    EXPECT_GT(slot.identity, ring.taken.empty() ? 0 : ring.taken.back().slot.identity) << text_;
  }
  const auto memory = rings().MemoryOf(slot);
  ASSERT_TRUE(memory.ok()) << text_ << memory.status();
  if (kind == kExpert) {
    const auto mark = static_cast<float>(slot.identity % 200 + 1);
    std::fill_n(memory->rows, SlotElements(), ToBFloat16(mark));
  }
  ring.last[ring.next] = static_cast<int>(ring.taken.size());
  ring.next = (ring.next + 1) % static_cast<int>(ring.last.size());
  ring.taken.push_back({slot, plan, weights});
  ring.taken.back().rows.assign(memory->rows, memory->rows + SlotElements());
}

// The next slot was acquired for what then failed: it is nobody's.
void RankModel::Undone(RingKind kind) {
  Ring& ring = RingOf(kind);
  ring.last[ring.next] = kNone;
}

void RankModel::PassWord(Taken& taken) {
  if (taken.passed) return;
  taken.word.Pass();
  taken.passed = true;
}

void RankModel::Released(const RingSlot& slot, bool passed) {
  Taken& taken = *Find(slot);
  taken.released = true;
  taken.passed = passed;
  taken.rows.clear();
}

}  // namespace perigee
