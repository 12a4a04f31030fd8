#include "tests/contract/rings_fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "kernels/layout/shard_layout.h"
#include "tests/contract/device_array.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

template <typename T>
std::vector<T> Read(Backend& backend, const T* from, size_t size) {
  std::vector<T> values(size);
  const auto to = absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), size * sizeof(T));
  EXPECT_TRUE(backend.CopyOut(to, reinterpret_cast<const std::byte*>(from)).ok());
  return values;
}

}  // namespace

RingsTest::RingsTest() : random_(TestSeed()) {
  inputs_ = NamedInputs(PlainGroup(random_, kGeometry), kRingShape.hidden, 1);
  for (RankInput& rank : inputs_) rank.hidden = NormalNumbers(random_, rank.hidden.size(), 1.0);
}

RankGroupOptions RingsTest::OptionsFor(const Geometry& geometry, const RingOptions& rings) const {
  RankGroupOptions options;
  options.geometry = geometry;
  options.own_mappings = GetParam().own_mappings && geometry.ranks <= kMostOwnMappings;
  options.rings = rings;
  return options;
}

void RingsTest::Start(const RingOptions& rings, absl::Duration operation_timeout, bool queues) {
  RankGroupOptions options = OptionsFor(kGeometry, rings);
  options.operation_timeout = operation_timeout;
  options.warmup_timeout = absl::Seconds(120);
  options.intermediate = kRingShape.intermediate;
  const RankBackends on = queues ? queueing_backends() : backends();
  group_ = std::make_unique<RankGroup>(on, options);
  store_ = std::make_unique<ExpertStore>(on, kGeometry, kRingShape, options.own_mappings);
  std::vector<ExpertBits> experts;
  for (int32_t expert = 0; expert < kGeometry.experts; ++expert) {
    const auto matrix = [&] { return NormalNumbers(random_, kRingShape.matrix_elements(), 0.1); };
    experts.push_back({matrix(), matrix(), matrix()});
  }
  store_->Load(0, 1, experts);
}

void RingsTest::PoisonSlot(RankGroup& group, const RankGroupOptions& options, int32_t rank,
                           int32_t slot) {
  const ShardLayout layout =
      ShardLayout::Create(group.geometry(), group.hidden(), options.rings.dispatch_slots);
  std::byte* const area =
      reinterpret_cast<std::byte*>(group.path(rank).rows()) + (1 + slot) * layout.area_bytes;
  const size_t rows = layout.logical_rows;
  const std::vector<std::byte> poison(rows * group.hidden() * sizeof(BFloat16), kPoison);
  EXPECT_TRUE(group.backend(rank).CopyIn(area, poison).ok());
  const auto weights = absl::MakeConstSpan(poison).first(rows * sizeof(float));
  EXPECT_TRUE(group.backend(rank).CopyIn(area + layout.row_weights_in_part(), weights).ok());
}

std::vector<SlotResult> RingsTest::Dispatch(RankGroup& group, const std::vector<RankInput>& inputs,
                                            const std::vector<PlanPtr>& plans) {
  std::vector<SlotResult> results(group.ranks());
  const int32_t slots = group.path(0).rings()->slots(RingKind::kDispatchOutput);
  for (int32_t rank = 0; rank < group.ranks(); ++rank) {
    // Those that nobody has.
    RankGroupOptions options;
    options.rings.dispatch_slots = slots;
    if (group.path(rank).rings()->acquired(RingKind::kDispatchOutput) > 0) continue;
    for (int32_t slot = 0; slot < slots; ++slot) PoisonSlot(group, options, rank, slot);
  }
  const Sequence sequence = group.NextSequence();
  group.OnAll([&](int32_t rank) {
    Backend& on = group.backend(rank);
    DataPath& path = group.path(rank);
    const RankInput& input = inputs[rank];
    const bool weighted = !input.route_weights.empty();
    const DispatchInput in = {kept_.Add(on, input.hidden), kept_.Add(on, input.topk_experts),
                              weighted ? kept_.Add(on, input.route_weights) : nullptr,
                              input.token_count};
    SlotResult& result = results[rank];
    if (plans.empty()) {
      auto made = path.rings()->Dispatch(sequence, in, {});
      result.status = made.status();
      if (made.ok()) result.slot = made->slot;
      if (made.ok()) result.dispatched.plan = made->plan;
    } else {
      auto slot = path.rings()->DispatchWithPlan(sequence, plans[rank], in);
      result.status = slot.status();
      if (slot.ok()) result.slot = *slot;
      result.dispatched.plan = plans[rank];
    }
    if (result.status.ok()) result.status = path.Synchronize();
    if (!result.status.ok()) return result.status;
    const auto tensors = path.ReadPlan(result.dispatched.plan);
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    if (tensors.ok()) result.dispatched.tensors = *tensors;
    const auto memory = path.rings()->MemoryOf(result.slot);
    EXPECT_TRUE(memory.ok()) << memory.status();
    const size_t rows = group.geometry().logical_rows();
    result.dispatched.rows = Read(on, memory->rows, rows * group.hidden());
    result.dispatched.row_weights = Read(on, memory->row_weights, rows);
    return result.status;
  });
  kept_.Clear();
  return results;
}

std::vector<SlotResult> RingsTest::Dispatch() {
  std::vector<SlotResult> results = Dispatch(*group_, inputs_);
  for (const SlotResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status;
  return results;
}

DispatchInput RingsTest::InputOf(int32_t rank) {
  return {kept_.Add(backend(rank), inputs_[rank].hidden),
          kept_.Add(backend(rank), inputs_[rank].topk_experts), nullptr, inputs_[rank].token_count};
}

std::vector<BFloat16> RingsTest::RowsAt(int32_t rank, const BFloat16* rows) {
  const size_t elements = static_cast<size_t>(kGeometry.logical_rows()) * group_->hidden();
  return Read(backend(rank), rows, elements);
}

absl::StatusOr<SlotDispatched> RingsTest::DispatchOn(int32_t rank, Sequence sequence) {
  auto made = rings(rank).Dispatch(sequence, InputOf(rank), {});
  const absl::Status ended = made.ok() ? group_->path(rank).Synchronize() : made.status();
  if (!ended.ok()) return ended;
  return made;
}

std::vector<absl::Status> RingsTest::Release(const std::vector<SlotResult>& results) {
  return group_->OnAll([&](int32_t rank) { return rings(rank).Release(results[rank].slot); });
}

void RingsTest::ExpectNextTakes(int32_t index) {
  const Sequence barrier = group_->NextSequence();
  ExpectOk(group_->OnAll([&](int32_t rank) { return group_->path(rank).Barrier(barrier); }));
  for (const SlotResult& result : Dispatch()) EXPECT_EQ(result.slot.index, index);
}

void RingsTest::ExpectRefused(const absl::Status& status, absl::StatusCode code,
                              const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(text));
}

std::vector<DispatchResult> DispatchedOf(const std::vector<SlotResult>& results) {
  std::vector<DispatchResult> dispatched;
  for (const SlotResult& result : results) {
    dispatched.push_back(result.dispatched);
    dispatched.back().status = result.status;
  }
  return dispatched;
}

}  // namespace perigee
