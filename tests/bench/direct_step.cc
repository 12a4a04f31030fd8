#include "tests/bench/direct_step.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/clock.h"
#include "tests/contract/device_array.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/rank_group.h"

namespace perigee {
namespace {

constexpr uint64_t kVersion = 1;
constexpr int kWarmRounds = 3;
// A worker's own: a rank that is not heard of ends the bench, and is named.
constexpr absl::Duration kOperationTimeout = absl::Seconds(10);

// What one rank reads and writes beside its shard.
struct StepTensors {
  StepTensors(Backend& backend, const StepShape& shape)
      : hidden(backend,
               std::vector<BFloat16>(static_cast<size_t>(shape.geometry.tokens) * shape.hidden,
                                     ToBFloat16(1))),
        routes(backend, Routes(shape)),
        output(backend, static_cast<size_t>(shape.geometry.tokens) * shape.hidden) {}

  static std::vector<int32_t> Routes(const StepShape& shape) {
    std::vector<int32_t> routes(shape.geometry.routes());
    for (size_t i = 0; i < routes.size(); ++i) routes[i] = StepExpert(shape, i);
    return routes;
  }

  DeviceArray<BFloat16> hidden;
  DeviceArray<int32_t> routes;
  DeviceArray<BFloat16> output;
};

RankGroupOptions OptionsFor(const StepShape& shape) {
  RankGroupOptions options;
  options.geometry = shape.geometry;
  options.hidden = shape.hidden;
  options.intermediate = shape.intermediate;
  options.operation_timeout = kOperationTimeout;
  return options;
}

// Collective sequences of `round`: a barrier, dispatch, prefetch, combine.
Sequence At(int round, uint64_t operation) {
  return Sequence(4 * static_cast<uint64_t>(round) + operation + 1);
}

absl::Status Step(DataPath& path, int round, const StepTensors& tensors, int32_t tokens,
                  const ExpertWeights& weights) {
  const DispatchInput input{tensors.hidden.data(), tensors.routes.data(), nullptr, tokens};
  const absl::StatusOr<PlanPtr> plan = path.Dispatch(At(round, 1), input, {});
  if (!plan.ok()) return plan.status();
  absl::Status status = path.PrefetchWeights(At(round, 2), *plan, weights);
  if (!status.ok()) return status;
  status = path.RunExperts(*plan, weights, {path.rows(), nullptr, path.rows()});
  if (!status.ok()) return status;
  status = path.Combine(At(round, 3), *plan, {path.rows(), nullptr}, {tensors.output.data()});
  if (!status.ok()) return status;
  return path.Synchronize();
}

}  // namespace

absl::StatusOr<std::vector<absl::Duration>> TimeDirectSteps(Backend& backend,
                                                            const StepShape& shape, int rounds) {
  RankGroup group(backend, OptionsFor(shape));
  ExpertStore store(backend, shape.geometry, {shape.hidden, shape.intermediate}, true);
  const std::vector<BFloat16> zeros(static_cast<size_t>(shape.hidden) * shape.intermediate);
  store.Load(0, kVersion, std::vector<ExpertBits>(shape.geometry.experts, {zeros, zeros, zeros}));
  std::vector<StepTensors> tensors;
  for (int32_t rank = 0; rank < group.ranks(); ++rank) tensors.emplace_back(backend, shape);
  std::vector<absl::Duration> times;
  const std::vector<absl::Status> ended = group.OnAll([&](int32_t rank) {
    DataPath& path = group.path(rank);
    const ExpertWeights weights = store.WeightsOf(rank, 0, kVersion);
    for (int round = 0; round < kWarmRounds + rounds; ++round) {
      absl::Status status = path.Barrier(At(round, 0));
      if (status.ok()) status = path.Synchronize();
      const absl::Duration start = RealClock().Monotonic();
      if (status.ok()) {
        status = Step(path, round, tensors[rank], shape.geometry.tokens, weights);
      }
      if (!status.ok()) return status;
      if (rank == 0 && round >= kWarmRounds) times.push_back(RealClock().Monotonic() - start);
    }
    return absl::OkStatus();
  });
  for (int32_t rank = 0; rank < group.ranks(); ++rank) {
    if (ended[rank].ok()) continue;
    return absl::Status(ended[rank].code(),
                        absl::StrCat("rank ", rank, ": ", ended[rank].message()));
  }
  return times;
}

}  // namespace perigee
