// One rank of the lifetimes model (lifetimes_model_test.cc): random commands on a data path, and
// what the rules say of each. Old plans, targets and source views stay in its hands.
#ifndef PERIGEE_TESTS_CONTRACT_RANK_MODEL_H_
#define PERIGEE_TESTS_CONTRACT_RANK_MODEL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/direct_publication.h"
#include "kernels/owner_source.h"
#include "tests/contract/model_group.h"

namespace perigee {

class RankModel {
 public:
  RankModel(ModelGroup& shared, int32_t rank, uint64_t seed)
      : shared_(shared), rank_(rank), random_(seed), homes_{{{0, 1}, {0, 1}}} {}

  void Run(int commands) {
    for (int i = 0; i < commands && !shared_.failed; ++i) {
      text_ = absl::StrCat("rank ", rank_, ", command ", i, ": ");
      Step();
    }
    shared_.meeting.arrive_and_drop();
  }
  // By how commands ended: done, refused, cancelled, stale weights.
  const std::array<int, 4>& ends() const { return ends_; }

 private:
  static constexpr int kNone = -1;
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
  bool Lives(int plan) const {
    return plan != kNone && plans_[plan].generation == shared_.generation;
  }
  PlanPtr HandleOf(int plan) const { return plan == kNone ? nullptr : plans_[plan].handle; }
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
    ++ends_[is_ok                                ? 0
            : expected == Code::kInvalidArgument ? 1
            : expected == Code::kCancelled       ? 2
                                                 : 3];
    return is_ok;
  }
  // The same of a collective operation; one that was not refused has used its sequence.
  bool AgreeAll(const char* what, const absl::Status& status, Code expected) {
    if (expected != Code::kInvalidArgument) next_ = next_.Next();
    return Agree(what, status, expected);
  }

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

  ModelGroup& shared_;
  const int32_t rank_;
  std::mt19937_64 random_;
  std::string text_;
  Sequence next_{1};
  bool cancels_ = false;
  std::array<int, 4> ends_ = {};

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
  } slot_;  // of this rank, the only one
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_RANK_MODEL_H_
