// One rank of the lifetimes model (lifetimes_model_test.cc): random commands on a data path, and
// what the rules say of each. Old plans, targets and source views stay in its hands.
#ifndef PERIGEE_TESTS_CONTRACT_RANK_MODEL_H_
#define PERIGEE_TESTS_CONTRACT_RANK_MODEL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/buffer_rings.h"
#include "kernels/direct_publication.h"
#include "kernels/owner_source.h"
#include "tests/contract/model_group.h"

namespace perigee {

class RankModel {
 public:
  RankModel(ModelGroup& shared, int32_t rank, uint64_t seed)
      : shared_(shared), rank_(rank), random_(seed), homes_{{{0, 1}, {0, 1}}} {
    ClearGradients();
  }

  void Run(int commands) {
    MeetOtherBuffer();
    for (int i = 0; i < commands && !shared_.failed; ++i) {
      text_ = absl::StrCat("rank ", rank_, ", command ", i, ": ");
      Step();
    }
    shared_.meeting.arrive_and_drop();
  }
  // By how commands ended: done, refused, cancelled, failed, no slot left.
  const std::array<int, 5>& ends() const { return ends_; }
  // Of commands on slots and gradients, how often each has ended with these words (model_words.h).
  using Ending = std::pair<std::string_view, std::string_view>;
  static const std::vector<Ending>& Endings();
  int Count(const Ending& ending) const {
    const auto found = seen_.find(ending);
    return found == seen_.end() ? 0 : found->second;
  }

 private:
  static constexpr int kNone = -1;
  static constexpr int kOther = -2;  // of another buffer
  using Code = absl::StatusCode;

  struct Plan {
    PlanPtr handle;
    uint64_t generation = 0;
    PlanTensors tensors;
  };
  struct Target {
    TargetPtr handle;
    uint64_t generation = 0;
  };
  struct Source {
    SourcePtr handle;
    int plan = kNone;
  };
  struct Home {
    int32_t layer = 0;
    uint64_t version = 0;
    friend bool operator==(const Home&, const Home&) = default;
  };

  // How a command must end, and what it then says.
  struct Verdict {
    Code code = Code::kOk;
    const char* words = "";
  };
  // An acquisition of a slot.
  struct Taken {
    RingSlot slot;
    int plan = kNone;
    int weights = kNone;  // the plan, where row weights lie with the rows
    bool released = false;
    bool passed = true;  // the last read, of what is released
    ReleaseWord word = ReleaseWord();
    std::vector<BFloat16> rows = {};  // what must lie there until it is released
  };
  struct Ring {
    std::vector<Taken> taken;  // all of this generation
    std::vector<int> last;     // in `taken`, of each slot; none where that was undone
    int next = 0;
  };

  int Draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  bool Chance(int of) { return Draw(of) == 0; }
  template <typename T>
  int DrawRecent(const std::vector<T>& made) {
    const int size = static_cast<int>(made.size());
    return size == 0 ? kNone : size - 1 - Draw(std::min(size, 6));
  }
  DataPath& path() { return shared_.group->path(rank_); }
  DirectPublication& publication() { return *path().publication(); }
  OwnerSource& source() { return *path().source(); }
  bool Lives(int plan) const { return plan >= 0 && plans_[plan].generation == shared_.generation; }
  PlanPtr HandleOf(int plan) const {
    return plan == kNone ? nullptr : plan == kOther ? other_plan_ : plans_[plan].handle;
  }
  // Mostly one that lives.
  int DrawPlan() {
    const int kind = Draw(16);
    const int recent = DrawRecent(plans_);
    return kind < 2 ? kOther : kind == 2 ? old_plan_ : recent;
  }
  TargetPtr TargetOf(int target) const {
    return target == kNone ? nullptr : targets_[target].handle;
  }
  bool IsTarget(int target) const { return target != kNone && target == target_; }
  void Overwritten() {
    rows_ = weights_ = target_ = kNone;
    prepared_ = false;
  }

  // How the command must end where nothing refuses it.
  Code CollectiveEnd(bool alive) const {
    return !alive ? Code::kInvalidArgument : cancels_ ? Code::kCancelled : Code::kOk;
  }
  // Whether it has ended as the model says, and well.
  bool Agree(const char* what, const absl::Status& status, Code expected) {
    if (status.code() != expected) {
      ADD_FAILURE() << text_ << what << " ended with " << status << ", the model says "
                    << absl::StatusCodeToString(expected);
      shared_.Stop();
      return false;
    }
    const bool is_ok = expected == Code::kOk;
    ++ends_[is_ok                                  ? 0
            : expected == Code::kInvalidArgument   ? 1
            : expected == Code::kCancelled         ? 2
            : expected == Code::kResourceExhausted ? 4
                                                   : 3];
    return is_ok;
  }
  // The same of a collective operation; one that was not refused has used its sequence.
  bool AgreeAll(const char* what, const absl::Status& status, Code expected) {
    const bool refused = expected == Code::kInvalidArgument || expected == Code::kResourceExhausted;
    if (!refused) next_ = next_.Next();
    return Agree(what, status, expected);
  }

  // The same of a command on slots or gradients, local or collective.
  bool AgreeSaying(const char* what, const absl::Status& status, const Verdict& expected,
                   bool collective);

  void Step();
  DispatchInput DrawInput(bool weighs);
  void Dispatch();
  void DispatchWithPlan();
  void Prefetch();
  void RunExperts();
  void Combine();
  void PrepareDispatch();
  void PreparePublication();
  void StoreRows();
  void Publish();
  void PrepareSource();
  void Materialise();
  void Others();
  void LoadHome();
  void NewGeneration();
  void Made(PlanPtr plan) {
    auto tensors = path().ReadPlan(plan);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    plans_.push_back({std::move(plan), shared_.generation, *std::move(tensors)});
  }
  // A plan was made, and its rows lie in the shard.
  void Holds(PlanPtr plan, bool with_weights) {
    Made(std::move(plan));
    Overwritten();
    rows_ = static_cast<int>(plans_.size()) - 1;
    weights_ = with_weights ? rows_ : kNone;
  }
  bool WeightsFit(int plan, const Home& wanted) const;

  // Slots (rank_model_slots.cc).
  BufferRings& rings() { return *path().rings(); }
  Ring& RingOf(RingKind kind) { return rings_[static_cast<int>(kind)]; }
  RingId OwnRing(RingKind kind) const {
    return {kind, BufferId(3), Generation(shared_.generation), RankId(rank_)};
  }
  void MeetOtherBuffer();
  bool SayTheSame(bool word);
  RingSlot DrawSlot(RingKind kind);
  int DrawPlanOf(const RingSlot& slot);
  Taken* Find(const RingSlot& slot);
  Verdict SlotEnd(const RingSlot& slot);
  Verdict AcquireEnd(RingKind kind);
  Verdict PlanEnd(int plan) const;
  Verdict ExpertsEnd(const RingSlot& slot, int plan, bool weighs, int to, bool fits);
  BFloat16* OutputOf(const RingSlot& slot, int to, std::vector<BFloat16>& outside);
  void Acquired(const RingSlot& slot, uint64_t identity, int plan, int weights);
  void Undone(RingKind kind);
  void PassWord(Taken& taken);
  void Released(const RingSlot& slot, bool passed);
  void DispatchToSlot();
  void RunExpertsOfSlot();
  void CombineSlot();
  void DeclineSlot();
  void AcquireExpertOutput();
  void ReleaseSlot();
  void ReadSlot();
  void ProbeSlot();
  void OthersOfSlots();

  // Gradients (rank_model_gradients.cc).
  void ReduceGradients();
  void ClearGradients();
  GradientValues GradientsOf(int32_t rank) const;
  void Reduced(const PlanTensors& tensors);

  ModelGroup& shared_;
  const int32_t rank_;
  std::mt19937_64 random_;
  std::string text_;
  Sequence next_{1};
  bool cancels_ = false;
  std::array<int, 5> ends_ = {};
  std::map<Ending, int> seen_;

  std::vector<Plan> plans_;
  std::vector<Target> targets_;
  std::vector<Source> sources_;
  int rows_ = kNone;     // the plan whose rows the shard holds
  int weights_ = kNone;  // likewise
  int target_ = kNone;
  int source_ = kNone;
  bool prepared_ = false;
  bool sends_weights_ = false;  // the prepared publication
  std::array<Home, 2> homes_;   // what each rank's block holds
  struct Slot {
    Home weights;
    int32_t expert = kNone;
  };
  std::array<Slot, kModelGeometry.slots> slots_;  // of this rank
  std::array<Ring, 2> rings_;                     // by kind
  RingSlot other_slot_;                           // of another buffer
  PlanPtr other_plan_;                            // likewise
  int old_plan_ = kNone;                          // of the generation before
  int meetings_ = 0;
  GradientValues sums_;  // of this rank's own experts; its slots are not used
  // What the elements of each rank's slots begin with; 0: they are clear.
  std::array<std::array<int, kModelGeometry.slots>, kModelGeometry.ranks> slot_gradients_ = {};
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_RANK_MODEL_H_
