#include "client/cli/run/step_rank.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cli/run/step_experts.h"
#include "client/lib/shared_copy.h"
#include "kernels/layout/gradients_layout.h"
#include "proto/local/local_command.h"

namespace perigee {
namespace {

// The worker's own deadline comes first; this is for one that has stopped.
constexpr absl::Duration kLongest = absl::Minutes(5);
// Between looks at the stop request.
constexpr absl::Duration kLook = absl::Milliseconds(200);
constexpr size_t GradientsLayout::*kMatrices[] = {&GradientsLayout::gate, &GradientsLayout::up,
                                                  &GradientsLayout::down};

LocalPlanId PlanOf(int32_t layer) { return LocalPlanId(static_cast<uint64_t>(layer) + 1); }

template <typename T>
absl::Span<const T> Part(const std::vector<T>& values, int64_t first, int64_t count) {
  return absl::MakeConstSpan(values).subspan(first, count);
}

// Copies in as long as all goes well.
class Writes {
 public:
  explicit Writes(const LocalClient& client) : client_(client) {}
  template <typename T>
  Writes& To(absl::Span<T> to, absl::Span<const T> from) {
    if (status_.ok()) status_ = CopyIn(client_.device(), to.data(), from);
    return *this;
  }
  const absl::Status& status() const { return status_; }

 private:
  const LocalClient& client_;
  absl::Status status_;
};

template <typename T>
absl::Status ReadInto(const LocalClient& client, const T* from, size_t count, std::vector<T>& to) {
  auto values = CopyOut(client.device(), from, count);
  if (values.ok()) to = *std::move(values);
  return values.status();
}

}  // namespace

absl::Status StepRank::Do(const LocalOperation& operation) {
  const absl::StatusOr<uint64_t> command = client_.Submit(operation);
  if (!command.ok()) return command.status();
  const char* name = CommandName(KindOf(operation));
  for (absl::Duration waited; waited < kLongest; waited += kLook) {
    if (stop_.stop_requested()) return absl::CancelledError("cancelled");
    const absl::StatusOr<LocalCompletion> done = client_.Wait(*command, kLook);
    if (absl::IsDeadlineExceeded(done.status())) continue;
    const absl::Status& status = done.ok() ? done->status : done.status();
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
    }
    auto timing = std::find_if(timings_.begin(), timings_.end(),
                               [&](const auto& seen) { return seen.operation() == name; });
    if (timing == timings_.end()) {
      timing = timings_.emplace(timing);
      timing->set_operation(name);
      timing->set_min_ns(INT64_MAX);
    }
    const int64_t ns = absl::ToInt64Nanoseconds(done->duration);
    timing->set_count(timing->count() + 1);
    timing->set_total_ns(timing->total_ns() + ns);
    timing->set_min_ns(std::min<int64_t>(timing->min_ns(), ns));
    timing->set_max_ns(std::max<int64_t>(timing->max_ns(), ns));
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat(name, " has not ended in ", absl::FormatDuration(kLongest)));
}

absl::StatusOr<StepOutcome> StepRank::Run() {
  StepOutcome outcome;
  outcome.layers.resize(sizes_.layers);
  kept_.assign(sizes_.layers, Kept());
  const int64_t elements = int64_t{tokens()} * sizes_.hidden;
  const absl::Span<const BFloat16> mine =
      Part(input_.hidden, first_token() * sizes_.hidden, elements);
  std::vector<BFloat16> hidden(mine.begin(), mine.end());
  for (int32_t layer = 0; layer < sizes_.layers; ++layer) {
    auto output = Forward(layer, std::move(hidden));
    if (!output.ok()) return output.status();
    hidden = *std::move(output);
    for (const int32_t expert : kept_[layer].experts_in_slots) outcome.replicas += expert >= 0;
  }
  outcome.output = std::move(hidden);
  const absl::Span<const BFloat16> grads =
      Part(input_.output_grad, first_token() * sizes_.hidden, elements);
  outcome.hidden_grad.assign(grads.begin(), grads.end());
  for (int32_t layer = sizes_.layers - 1; layer >= 0; --layer) {
    auto grad = Backward(layer, outcome.hidden_grad, outcome.layers[layer]);
    if (!grad.ok()) return grad.status();
    outcome.hidden_grad = *std::move(grad);
  }
  return outcome;
}

absl::StatusOr<std::vector<BFloat16>> StepRank::Forward(int32_t layer,
                                                        std::vector<BFloat16> hidden) {
  Kept& kept = kept_[layer];
  kept.hidden = std::move(hidden);
  const int64_t first = first_token() * sizes_.topk;
  const int64_t routes = int64_t{tokens()} * sizes_.topk;
  const StepLayer& data = input_.layers[layer];
  absl::Status status = Writes(client_)
                            .To(client_.hidden(), absl::MakeConstSpan(kept.hidden))
                            .To(client_.topk_experts(), Part(data.topk_experts, first, routes))
                            .To(client_.route_weights(), Part(data.route_weights, first, routes))
                            .status();
  if (status.ok()) status = Do(LocalDispatch{PlanOf(layer), tokens(), /*route_weights=*/true});
  if (status.ok()) status = KeepPlan(kept);
  if (status.ok() && layer % 2 == 0) status = KeepRows(kept);
  if (status.ok()) status = Do(LocalPrefetchWeights{PlanOf(layer), layer, kStepWeightsVersion});
  if (status.ok()) {
    status = Do(LocalRunExperts{PlanOf(layer), layer, kStepWeightsVersion, /*route_weights=*/true});
  }
  if (status.ok()) status = Do(LocalCombine{PlanOf(layer)});
  if (!status.ok()) return status;
  return CopyOut(client_.device(), client_.output().data(), client_.output().size());
}

absl::StatusOr<std::vector<BFloat16>> StepRank::Backward(int32_t layer,
                                                         const std::vector<BFloat16>& grad,
                                                         StepOutcome::Layer& found) {
  Kept& kept = kept_[layer];
  absl::Status status;
  if (kept.rows.empty()) {
    status = Writes(client_).To(client_.hidden(), absl::MakeConstSpan(kept.hidden)).status();
    const StepLayer& data = input_.layers[layer];
    const int64_t routes = int64_t{tokens()} * sizes_.topk;
    if (status.ok()) {
      status = CopyIn(client_.device(), client_.route_weights().data(),
                      Part(data.route_weights, first_token() * sizes_.topk, routes));
    }
    if (status.ok()) status = Do(LocalDispatchWithPlan{PlanOf(layer), tokens(), true});
    if (status.ok()) status = KeepRows(kept);
  }
  if (status.ok()) {
    status = Writes(client_).To(client_.hidden(), absl::MakeConstSpan(grad)).status();
  }
  if (status.ok()) status = Do(LocalDispatchWithPlan{PlanOf(layer), tokens(), false});
  if (status.ok()) status = ExpertsBackward(layer, kept);
  if (status.ok()) {
    status = Do(LocalCombine{PlanOf(layer), /*route_weights=*/true, /*own_weights=*/true});
  }
  if (!status.ok()) return status;
  auto grad_in = CopyOut(client_.device(), client_.output().data(), client_.output().size());
  if (!grad_in.ok()) return grad_in;
  status = ReadInto(client_, client_.gathered_weights().data(), client_.gathered_weights().size(),
                    found.route_weight_grad);
  if (status.ok()) status = Do(LocalReduceGradients{PlanOf(layer), layer});
  if (!status.ok()) return status;
  absl::StatusOr<Sums> sums = ReadSums(layer);
  if (!sums.ok()) return sums.status();
  found.gate_grad = std::move((*sums)[0]);
  found.up_grad = std::move((*sums)[1]);
  found.down_grad = std::move((*sums)[2]);
  kept = Kept();
  return grad_in;
}

absl::Status StepRank::KeepPlan(Kept& kept) {
  const Geometry& geometry = client_.geometry();
  const PlanArrays& plan = client_.plan();
  absl::Status status = ReadInto(client_, plan.cu_seqlens, geometry.groups(), kept.cu_seqlens);
  if (status.ok()) {
    status = ReadInto(client_, plan.zero_fill_ranges, 2 * geometry.groups(), kept.zero_fill);
  }
  if (!status.ok()) return status;
  return ReadInto(client_, plan.experts_to_copy + client_.rank().value * geometry.slots,
                  geometry.slots, kept.experts_in_slots);
}

absl::Status StepRank::KeepRows(Kept& kept) {
  absl::Status status = ReadInto(client_, static_cast<const BFloat16*>(client_.rows().data()),
                                 client_.rows().size(), kept.rows);
  if (!status.ok()) return status;
  return ReadInto(client_, static_cast<const float*>(client_.row_weights().data()),
                  client_.row_weights().size(), kept.row_weights);
}

absl::Status StepRank::ExpertsBackward(int32_t layer, const Kept& kept) {
  const Geometry& geometry = client_.geometry();
  const StepLayer& data = input_.layers[layer];
  const int64_t matrix = sizes_.matrix_elements();
  std::vector<BFloat16> rows;
  absl::Status status = ReadInto(client_, static_cast<const BFloat16*>(client_.rows().data()),
                                 client_.rows().size(), rows);
  if (!status.ok()) return status;
  std::vector<float> weights = kept.row_weights;
  const auto zeros = [&](int32_t count) {
    return Sums{std::vector<float>(count * matrix), std::vector<float>(count * matrix),
                std::vector<float>(count * matrix)};
  };
  Sums home = zeros(geometry.experts_per_rank());
  Sums slots = zeros(geometry.slots);
  std::vector<BFloat16> row_grad(sizes_.hidden);
  for (int32_t group = 0, first = 0; group < geometry.groups(); ++group) {
    const int32_t end = kept.cu_seqlens[group];
    const int32_t slot = group - geometry.experts;
    const int32_t expert = slot < 0 ? group : kept.experts_in_slots[slot];
    const int64_t place = (slot < 0 ? group % geometry.experts_per_rank() : slot) * matrix;
    Sums& sums = slot < 0 ? home : slots;
    // Padding rows come last in a group, as many as its zero-filled range says.
    for (int32_t row = first; row < end - kept.zero_fill[2 * group + 1]; ++row) {
      const ExpertMatrices matrices = {sizes_.hidden, sizes_.intermediate,
                                       &data.gate[expert * matrix], &data.up[expert * matrix],
                                       &data.down[expert * matrix]};
      BFloat16* const grad = &rows[int64_t{row} * sizes_.hidden];
      weights[row] = ExpertRowBackward(matrices, &kept.rows[int64_t{row} * sizes_.hidden],
                                       kept.row_weights[row], grad, row_grad.data(),
                                       {&sums[0][place], &sums[1][place], &sums[2][place]});
      std::copy(row_grad.begin(), row_grad.end(), grad);
    }
    first = end;
  }
  status = Writes(client_)
               .To(client_.rows(), absl::MakeConstSpan(rows))
               .To(client_.row_weights(), absl::MakeConstSpan(weights))
               .status();
  if (status.ok()) status = WriteSums(layer, home);
  return status.ok() ? WriteSums(kSlots, slots) : status;
}

float* StepRank::SumsAt(int32_t layer, int matrix) const {
  return layer == kSlots ? client_.gradients().slots(kMatrices[matrix])
                         : client_.gradients().home(layer, kMatrices[matrix]);
}

absl::StatusOr<StepRank::Sums> StepRank::ReadSums(int32_t layer) const {
  Sums sums;
  for (int matrix = 0; matrix < 3; ++matrix) {
    const size_t count = client_.geometry().experts_per_rank() * sizes_.matrix_elements();
    absl::Status status =
        ReadInto(client_, static_cast<const float*>(SumsAt(layer, matrix)), count, sums[matrix]);
    if (!status.ok()) return status;
  }
  return sums;
}

absl::Status StepRank::WriteSums(int32_t layer, const Sums& sums) const {
  absl::Status status;
  for (int matrix = 0; matrix < 3 && status.ok(); ++matrix) {
    if (sums[matrix].empty()) continue;
    status = CopyIn(client_.device(), SumsAt(layer, matrix), absl::MakeConstSpan(sums[matrix]));
  }
  return status;
}

}  // namespace perigee
