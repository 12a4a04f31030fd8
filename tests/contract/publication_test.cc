// Direct publication on every backend: rows, weights and plan bit for bit those of a dispatch.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernels/direct_publication.h"
#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/same_results.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

// Who writes the rows.
enum class Producer { kStoreRows, kByHand };
// Whether all that is not rows goes before them or after.
enum class Order { kPreparedFirst, kProducedFirst };

struct Way {
  Producer producer;
  Order order;
  Copy copy;
};

// As an epilogue of the framework's would: each row that the target has a place for, and no other.
void WriteByHand(Backend& backend, const TargetHandle& target, const RankInput& input,
                 int32_t hidden, int32_t topk) {
  const auto taken = target.Take({Access::kStore});
  ASSERT_TRUE(taken.ok()) << taken.status();
  const ProducerView& to = **taken;
  std::vector<int32_t> dst(static_cast<size_t>(input.token_count) * topk);
  const auto bytes = absl::MakeSpan(reinterpret_cast<std::byte*>(dst.data()), dst.size() * 4);
  ASSERT_TRUE(backend.CopyOut(bytes, reinterpret_cast<const std::byte*>(to.dst)).ok());
  for (size_t i = 0; i < dst.size(); ++i) {
    if (dst[i] < 0) continue;
    const auto* row = reinterpret_cast<const std::byte*>(&input.hidden[i / topk * hidden]);
    BFloat16* place =
        to.rows[dst[i] / to.logical_rows] + static_cast<size_t>(dst[i] % to.logical_rows) * hidden;
    const absl::Status status = backend.CopyIn(reinterpret_cast<std::byte*>(place),
                                               absl::MakeConstSpan(row, hidden * sizeof(BFloat16)));
    ASSERT_TRUE(status.ok()) << status;
  }
}

class PublicationContractTest : public ContractTest {
 protected:
  PublicationContractTest() : random_(TestSeed()) {}

  void SetUp() override {
    RankGroup group(backends(), OptionsFor({.ranks = 1, .experts = 1, .tokens = 1, .topk = 1}));
    if (group.path(0).publication() == nullptr) GTEST_SKIP() << "has no direct publication";
  }

  RankGroupOptions OptionsFor(const Geometry& geometry) const {
    RankGroupOptions options;
    options.geometry = geometry;
    options.own_mappings = GetParam().own_mappings && geometry.ranks <= kMostOwnMappings;
    return options;
  }

  // What RankGroup::Dispatch does, by direct publication.
  std::vector<DispatchResult> Publish(RankGroup& group, const std::vector<RankInput>& inputs,
                                      const Way& way) {
    std::vector<DispatchResult> results(group.ranks());
    const Sequence prepare = group.NextSequence();
    const Sequence publish = group.NextSequence();
    for (int32_t rank = 0; rank < group.ranks(); ++rank) group.Poison(rank);
    group.OnAll([&](int32_t rank) {
      results[rank].status =
          PublishOn(group, rank, prepare, publish, inputs[rank], way, results[rank]);
      return results[rank].status;
    });
    return results;
  }

  void ExpectEqualToDispatch(const GroupInput& input, RankGroup& group, uint32_t salt,
                             const Way& way);

  std::mt19937_64 random_;

 private:
  absl::Status PublishOn(RankGroup& group, int32_t rank, Sequence prepare, Sequence publish,
                         const RankInput& input, const Way& way, DispatchResult& result);
};

absl::Status PublicationContractTest::PublishOn(RankGroup& group, int32_t rank, Sequence prepare,
                                                Sequence publish, const RankInput& input,
                                                const Way& way, DispatchResult& result) {
  Backend& on = backend(rank);
  DirectPublication& path = *group.path(rank).publication();
  const DeviceArray<BFloat16> hidden(on, input.hidden);
  const DeviceArray<int32_t> topk_experts(on, input.topk_experts);
  const DeviceArray<float> route_weights(on, input.route_weights);
  const float* weights = input.route_weights.empty() ? nullptr : route_weights.data();
  const auto target = path.PrepareDispatch(prepare, {topk_experts.data(), input.token_count});
  if (!target.ok()) return target.status();
  EXPECT_EQ((*target)->tag(), (ObjectTag{BufferId(3), Generation(7), prepare}));
  absl::Status status;
  if (way.order == Order::kPreparedFirst) status = path.PreparePublication(*target, weights);
  if (!status.ok()) return status;
  if (way.producer == Producer::kByHand) {
    WriteByHand(on, **target, input, group.hidden(), group.geometry().topk);
  } else {
    status = path.StoreRows(*target, hidden.data());
  }
  if (status.ok() && way.order == Order::kProducedFirst) {
    status = path.PreparePublication(*target, weights);
  }
  if (!status.ok()) return status;

  const auto rows = static_cast<size_t>(group.geometry().logical_rows());
  const DeviceArray<BFloat16> rows_out(on, rows * group.hidden());
  const DeviceArray<float> weights_out(on, rows);
  DispatchOutput output;
  if (way.copy == Copy::kCopied) output = {rows_out.data(), weights_out.data()};
  auto plan = path.Publish(publish, *target, output);
  if (!plan.ok()) return plan.status();
  const auto tensors = group.path(rank).ReadPlan(*plan);
  if (!tensors.ok()) return tensors.status();
  result.plan = *std::move(plan);
  result.tensors = *tensors;
  const bool copied = way.copy == Copy::kCopied;
  result.rows = copied ? rows_out.Get() : group.ReadRows(rank);
  result.row_weights = copied ? weights_out.Get() : group.ReadRowWeights(rank);
  return absl::OkStatus();
}

// Also what is done by the two plans afterwards.
void PublicationContractTest::ExpectEqualToDispatch(const GroupInput& input, RankGroup& group,
                                                    uint32_t salt, const Way& way) {
  const std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), salt);
  const std::vector<DispatchResult> dispatched = group.Dispatch(inputs, way.copy);
  const std::vector<DispatchResult> published = Publish(group, inputs, way);
  ExpectSameResults(published, dispatched);
  if (HasFailure()) return;
  ExpectSameAfterwards(group, input, ~salt, way.copy, random_, published, dispatched);
}

// 500 of them where a dispatch has 300.
TEST_P(PublicationContractTest, RandomGroupsAreEqualToDispatch) {
  const int groups = GetParam().random_groups * 5 / 3;
  OnRandomGroups(random_, groups, GetParam().max_ranks, [&](int i, GroupInput input) {
    RankGroup group(backends(), OptionsFor(input.geometry));
    // Twice with other routes: what the first has left in the shard must not matter.
    for (int round = 0; round < 2; ++round) {
      const Way way = {i % 4 < 2 ? Producer::kStoreRows : Producer::kByHand,
                       (i + round) % 2 == 0 ? Order::kPreparedFirst : Order::kProducedFirst,
                       (i / 4 + round) % 2 == 0 ? Copy::kInPlace : Copy::kCopied};
      ExpectEqualToDispatch(input, group, 2 * i + round, way);
      for (int32_t rank = 0; rank < input.geometry.ranks; ++rank) {
        const auto routes =
            input.topk_experts.begin() + static_cast<size_t>(rank) * input.geometry.routes();
        std::shuffle(routes, routes + input.token_counts[rank] * input.geometry.topk, random_);
      }
    }
  });
}

TEST_P(PublicationContractTest, GoldenVectorsOfTheRules) {
  GroupInput g1;
  g1.geometry = {.ranks = 2, .experts = 4, .tokens = 3, .topk = 2, .slots = 2, .token_padding = 4};
  g1.topk_experts = {0, 1, 0, 2, 1, 0, /**/ 0, 3, 1, 0, 2, 0};
  g1.token_counts = {3, 3};
  RankGroup group(backends(), OptionsFor(g1.geometry));
  const Way way = {Producer::kByHand, Order::kPreparedFirst, Copy::kInPlace};
  const auto results = Publish(group, NamedInputs(g1, group.hidden(), 1), way);
  ASSERT_TRUE(results[0].status.ok() && results[1].status.ok());
  EXPECT_EQ(results[0].tensors.dst, (std::vector<int32_t>{0, -5, 1, 18, 5, -3}));
  EXPECT_EQ(results[1].tensors.dst, (std::vector<int32_t>{26, -23, 6, 27, 19, -29}));
  EXPECT_EQ(results[1].tensors.cu_seqlens, (std::vector<int32_t>{0, 0, 4, 8, 12, 12}));
  ExpectEqualToDispatch(g1, group, 2, way);
}

TEST_P(PublicationContractTest, LargeRowsManyExpertsAndEmptyRanks) {
  const Geometry geometries[] = {
      {.ranks = 3, .experts = 12, .tokens = 200, .topk = 5, .slots = 4},
      {.ranks = 4, .experts = 4800, .tokens = 70, .topk = 6, .slots = 5, .token_padding = 4},
      {.ranks = 1, .experts = 4, .tokens = 6, .topk = 2, .slots = 4, .token_padding = 4},
      {.ranks = 2, .experts = 4, .tokens = 0, .topk = 2, .slots = 2, .token_padding = 8},
  };
  for (const Geometry& geometry : geometries) {
    GroupInput input = PlainGroup(random_, geometry);
    SCOPED_TRACE(input.Describe());
    RankGroupOptions options = OptionsFor(geometry);
    options.hidden = geometry.experts == 12 ? 520 : 16;
    options.threads = 3;
    RankGroup group(backends(), options);
    const Way way = {Producer::kStoreRows, Order::kPreparedFirst, Copy::kCopied};
    ExpectEqualToDispatch(input, group, 5, way);
    input.token_counts.back() = 0;
    ExpectEqualToDispatch(input, group, 6, way);
  }
}

TEST_P(PublicationContractTest, WithoutWeightsRowWeightsAreNotWritten) {
  const GroupInput input = PlainGroup(
      random_, {.ranks = 2, .experts = 4, .tokens = 6, .topk = 2, .slots = 2, .token_padding = 4});
  RankGroup group(backends(), OptionsFor(input.geometry));
  std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), 1);
  for (RankInput& rank : inputs) rank.route_weights.clear();
  const std::vector<DispatchResult> dispatched = group.Dispatch(inputs, Copy::kInPlace);
  const Way way = {Producer::kStoreRows, Order::kPreparedFirst, Copy::kInPlace};
  ExpectSameResults(Publish(group, inputs, way), dispatched);
}

// One behind the other with no wait of the host between them, each into the shard that the last one
// was summed from.
TEST_P(PublicationContractTest, QueuedPublicationsGiveTheBitsOfDispatches) {
  const Geometry geometry = {.ranks = std::min(4, GetParam().max_ranks),
                             .experts = 8,
                             .tokens = 50,
                             .topk = 3,
                             .slots = 2,
                             .token_padding = 8};
  const GroupInput input = PlainGroup(random_, geometry);
  RankGroup group(queueing_backends(), OptionsFor(geometry));
  std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), 1);
  for (RankInput& rank : inputs) rank.hidden = NormalNumbers(random_, rank.hidden.size(), 1.0);
  constexpr int kSteps = 4;
  const auto run = [&](bool publishes) {
    std::vector<Sequence> sequences;
    for (int i = 0; i < 3 * kSteps; ++i) sequences.push_back(group.NextSequence());
    std::vector<std::vector<BFloat16>> outputs(geometry.ranks);
    ExpectOk(group.OnAll([&](int32_t rank) -> absl::Status {
      DataPath& path = group.path(rank);
      DirectPublication& publication = *path.publication();
      const DeviceArray<BFloat16> hidden(backend(rank), inputs[rank].hidden);
      const DeviceArray<int32_t> routes(backend(rank), inputs[rank].topk_experts);
      for (int step = 0; step < kSteps; ++step) {
        const Sequence* at = &sequences[3 * step];
        absl::StatusOr<PlanPtr> plan = PlanPtr();
        absl::Status status;
        if (publishes) {
          const auto target = publication.PrepareDispatch(at[0], {routes.data(), geometry.tokens});
          if (!target.ok()) return target.status();
          status = publication.PreparePublication(*target, nullptr);
          if (status.ok()) status = publication.StoreRows(*target, hidden.data());
          if (status.ok()) plan = publication.Publish(at[1], *target, {});
        } else {
          status = path.Barrier(at[0]);
          if (status.ok()) {
            plan =
                path.Dispatch(at[1], {hidden.data(), routes.data(), nullptr, geometry.tokens}, {});
          }
        }
        if (!status.ok() || !plan.ok()) return status.ok() ? plan.status() : status;
        status = path.Combine(at[2], *plan, {path.rows(), nullptr}, {hidden.data(), nullptr});
        if (!status.ok()) return status;
      }
      const absl::Status status = path.Synchronize();
      outputs[rank] = hidden.Get();
      return status;
    }));
    return outputs;
  };
  const auto dispatched = run(false);
  EXPECT_NE(dispatched[0], inputs[0].hidden);
  EXPECT_EQ(run(true), dispatched);
}

INSTANTIATE_TEST_SUITE_P(Backends, PublicationContractTest, testing::ValuesIn(PublishingCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
