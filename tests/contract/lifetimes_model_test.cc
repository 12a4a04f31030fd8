// What lives and what is dead, by random commands on the host backend: a model of the rules
// (kernels/backend.h, kernels/direct_publication.h) says of each command how it ends, and what is
// alive after it; every rank must agree, for generations on end.
//
// All ranks draw the same commands from the same seed, each on its own thread with a model of its
// own, and meet in those that are collective. Old plans and targets stay in their hands.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/direct_publication.h"
#include "tests/contract/model_group.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

constexpr int kNone = -1;
constexpr int kGenerationEvery = 300;  // commands
#if defined(PERIGEE_TSAN) || defined(__SANITIZE_ADDRESS__)
constexpr int kCommands = 10'000;
#else
constexpr int kCommands = 100'000;
#endif

int Commands() {
  const char* given = std::getenv("PERIGEE_LIFETIME_COMMANDS");
  return given == nullptr ? kCommands : std::atoi(given);
}

using Code = absl::StatusCode;

// One rank: what it holds, what the model says of it, and its commands.
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
  struct Plan {
    PlanPtr handle;
    uint64_t generation = 0;
    PlanTensors tensors;
  };
  struct Target {
    TargetPtr handle;
    uint64_t generation = 0;
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
  void Others();
  void LoadHome();
  void NewGeneration();
  // A plan was made, and its rows lie in the shard.
  void Holds(PlanPtr plan, bool with_weights) {
    auto tensors = path().ReadPlan(plan);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    Overwritten();
    plans_.push_back({std::move(plan), shared_.generation, *std::move(tensors)});
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
  int rows_ = kNone;     // the plan whose rows the shard holds
  int weights_ = kNone;  // likewise
  int target_ = kNone;
  bool prepared_ = false;
  bool sends_weights_ = false;  // the prepared publication
  std::array<Home, 2> homes_;   // what each rank's block holds
  struct Slot {
    Home weights;
    int32_t expert = kNone;
  } slot_;  // of this rank, the only one
};

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
                                     &RankModel::LoadHome,
                                     &RankModel::Others};
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
  const int plan = DrawRecent(plans_);
  const absl::Status status = path().DispatchWithPlan(next_, HandleOf(plan), DrawInput(weighs), {});
  if (!AgreeAll("dispatch with plan", status, CollectiveEnd(Lives(plan) && !prepared_))) return;
  const bool kept = weights_ == plan;
  Overwritten();
  rows_ = plan;
  weights_ = weighs || kept ? plan : kNone;
}

void RankModel::Prefetch() {
  const int plan = DrawRecent(plans_);
  const Home wanted = {Draw(2), static_cast<uint64_t>(1 + Draw(2))};
  const ExpertWeights weights = shared_.store->WeightsOf(rank_, wanted.layer, wanted.version);
  const absl::Status status = path().PrefetchWeights(next_, HandleOf(plan), weights);
  Code expected = CollectiveEnd(Lives(plan));
  const int32_t expert = Lives(plan) ? plans_[plan].tensors.experts_to_copy[rank_] : kNone;
  const bool fits = expert == kNone || homes_[kModelGeometry.home_rank(expert)] == wanted;
  if (expected == Code::kOk && !fits) expected = Code::kFailedPrecondition;
  AgreeAll("prefetch", status, expected);
  if (expected == Code::kFailedPrecondition) slot_ = {};
  if (expected == Code::kOk && expert != kNone) slot_ = {wanted, expert};
}

// Whether the homes and the slot that the plan's rows on this rank use hold what is wanted.
bool RankModel::WeightsFit(int plan, const Home& wanted) const {
  const PlanTensors& tensors = plans_[plan].tensors;
  int32_t begin = 0;
  for (int32_t group = 0; group < kModelGeometry.groups(); ++group) {
    const int32_t end = tensors.cu_seqlens[group];
    const bool used = end - begin > tensors.zero_fill_ranges[2 * group + 1];
    begin = end;
    if (!used) continue;
    const bool in_slot = group >= kModelGeometry.experts;
    if (in_slot && (slot_.weights != wanted || slot_.expert != tensors.experts_to_copy[rank_])) {
      return false;
    }
    if (!in_slot && homes_[kModelGeometry.home_rank(group)] != wanted) return false;
  }
  return true;
}

void RankModel::RunExperts() {
  const int plan = DrawRecent(plans_);
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
  const int plan = DrawRecent(plans_);
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
  } else if (Agree("probe_copy", path().ProbeCopy(CopyProbe::kOwnShard),
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
  if (rank_ == 0 && !shared_.failed) shared_.Renew();
  shared_.meeting.arrive_and_wait();
  next_ = Sequence(1);
  Overwritten();
}

TEST(LifetimesModelTest, EveryRankAgreesWithTheModel) {
  const uint64_t seed = TestSeed();
  ModelGroup shared(seed);
  std::vector<std::unique_ptr<RankModel>> ranks;
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < kModelGeometry.ranks; ++rank) {
    ranks.push_back(std::make_unique<RankModel>(shared, rank, seed));
  }
  for (const auto& rank : ranks) {
    threads.emplace_back([&rank] { rank->Run(Commands()); });
  }
  for (std::thread& thread : threads) thread.join();
  // All ways to end were met, or the rules were not tried.
  for (const auto& rank : ranks) {
    for (const int count : rank->ends()) EXPECT_GT(count, Commands() / 1000);
  }
  EXPECT_GT(shared.generation, 7u);
}

}  // namespace
}  // namespace perigee
