// The reduction of gradients in RankModel: when it is refused, and what it sums and clears.
#include <utility>

#include "tests/contract/model_words.h"
#include "tests/contract/rank_model.h"

namespace perigee {
namespace {

constexpr int kKinds = 3;

// Of one slot's matrix; no two elements nor kinds are alike.
std::vector<float> MatrixOf(int first, int kind) {
  std::vector<float> matrix(kModelShape.matrix_elements());
  for (size_t i = 0; i < matrix.size() && first != 0; ++i) {
    matrix[i] = static_cast<float>(first + kind) + static_cast<float>(i) / 64.0f;
  }
  return matrix;
}

}  // namespace

void RankModel::ClearGradients() {
  const size_t size = kModelGeometry.experts_per_rank() * kModelShape.matrix_elements();
  for (std::vector<float>& home : sums_.home) home.assign(size, 0.0f);
  shared_.gradients->Write(rank_, GradientsOf(rank_));
}

// What this rank's memory must hold.
GradientValues RankModel::GradientsOf(int32_t rank) const {
  GradientValues values = sums_;
  for (int kind = 0; kind < kKinds; ++kind) {
    for (const int first : slot_gradients_[rank]) {
      const std::vector<float> matrix = MatrixOf(first, kind);
      values.slots[kind].insert(values.slots[kind].end(), matrix.begin(), matrix.end());
    }
  }
  return values;
}

void RankModel::Reduced(const PlanTensors& tensors) {
  const int32_t slots = kModelGeometry.slots;
  const auto elements = static_cast<size_t>(kModelShape.matrix_elements());
  for (int32_t place = 0; place < kModelGeometry.ranks * slots; ++place) {
    const int32_t expert = tensors.experts_to_copy[place];
    int& first = slot_gradients_[place / slots][place % slots];
    const bool is_own = expert != kNone && kModelGeometry.home_rank(expert) == rank_;
    if (is_own && first != 0) ++seen_[{"reduce gradients", kSums}];
    for (int kind = 0; kind < kKinds && is_own; ++kind) {
      const std::vector<float> matrix = MatrixOf(first, kind);
      float* const home = &sums_.home[kind][expert % kModelGeometry.experts_per_rank() * elements];
      for (size_t i = 0; i < elements; ++i) home[i] += matrix[i];
    }
    if (expert != kNone) first = 0;
  }
}

void RankModel::ReduceGradients() {
  const int plan = DrawPlan();
  const bool renews = !Chance(3);
  for (auto& slots : slot_gradients_) {
    for (int& first : slots) {
      const int drawn = 1 + Draw(1000);
      if (renews) first = drawn;
    }
  }
  if (renews) shared_.gradients->Write(rank_, GradientsOf(rank_));
  Verdict expected = PlanEnd(plan);
  const Geometry& geometry = shared_.group->geometry();
  if (expected.code == Code::kOk && geometry.slots < geometry.experts_per_rank()) {
    expected = {Code::kInvalidArgument, kFewSlots};
  }
  if (expected.code == Code::kOk && cancels_) expected = {Code::kCancelled, kCancel};
  const absl::Status status =
      path().ReduceGradients(next_, HandleOf(plan), shared_.gradients->GradientsOf(rank_, Draw(2)));
  if (AgreeSaying("reduce gradients", status, expected, /*collective=*/true)) {
    Reduced(plans_[plan].tensors);
  }
  if (shared_.failed) return;
  const GradientValues held = shared_.gradients->Read(rank_);
  const GradientValues wanted = GradientsOf(rank_);
  for (int kind = 0; kind < kKinds; ++kind) {
    const bool same =
        held.home[kind] == wanted.home[kind] && held.slots[kind] == wanted.slots[kind];
    if (same) continue;
    ADD_FAILURE() << text_ << "gradients of kind " << kind << " are not those of the model";
    shared_.Stop();
  }
}

}  // namespace perigee
