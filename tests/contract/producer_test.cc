// A backend's own producer: its product against a slow one, and both its epilogues, which leave the
// same bits in the shards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "absl/status/status.h"
#include "kernels/direct_publication.h"
#include "kernels/row_producer.h"
#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

// How a target's metadata is sent.
enum class Metadata { kBefore, kBeside, kAfter };

// One rank's part of a product.
struct Factors {
  std::vector<BFloat16> a;  // [n, C]
  std::vector<BFloat16> b;  // [C, H]
  int32_t depth = 0;
  int32_t token_count = 0;
};

// The same in a backend's memory.
struct DeviceFactors {
  DeviceFactors(Backend& backend, const Factors& factors)
      : a(backend, factors.a),
        b(backend, factors.b),
        input{a.data(), b.data(), factors.depth, factors.token_count} {}
  DeviceArray<BFloat16> a;
  DeviceArray<BFloat16> b;
  ProductInput input;
};

class ProducerContractTest : public ContractTest {
 protected:
  ProducerContractTest() : random_(TestSeed()) {}

  void SetUp() override {
    RankGroup group(backends(), OptionsFor({.ranks = 1, .experts = 1, .tokens = 1, .topk = 1}, 8));
    if (group.path(0).producer() == nullptr) GTEST_SKIP() << "has no producer";
  }

  RankGroupOptions OptionsFor(const Geometry& geometry, int32_t hidden) const {
    RankGroupOptions options;
    options.geometry = geometry;
    options.hidden = hidden;
    options.own_mappings = GetParam().own_mappings && geometry.ranks <= kMostOwnMappings;
    return options;
  }

  std::vector<Factors> RandomFactors(const RankGroup& group, const std::vector<RankInput>& inputs,
                                     int32_t depth) {
    std::vector<Factors> factors;
    for (const RankInput& input : inputs) {
      const auto n = static_cast<size_t>(input.token_count);
      factors.push_back({NormalNumbers(random_, n * depth, 1.0),
                         NormalNumbers(random_, static_cast<size_t>(depth) * group.hidden(), 0.5),
                         depth, input.token_count});
    }
    return factors;
  }

  // Into memory of each rank: [R] of [n, H], poison in what is not of a product.
  std::vector<std::vector<BFloat16>> Produce(RankGroup& group,
                                             const std::vector<Factors>& factors) {
    std::vector<std::vector<BFloat16>> outputs(group.ranks());
    ExpectOk(group.OnAll([&](int32_t rank) {
      const DeviceFactors on(backend(rank), factors[rank]);
      const DeviceArray<BFloat16> output(
          backend(rank), static_cast<size_t>(group.geometry().tokens) * group.hidden());
      absl::Status status = group.path(rank).producer()->Produce(on.input, output.data());
      outputs[rank] = output.Get();
      return status;
    }));
    return outputs;
  }

  // What the shards hold after the product was published.
  std::vector<DispatchResult> Publish(RankGroup& group, const std::vector<RankInput>& inputs,
                                      const std::vector<Factors>& factors, Metadata metadata) {
    std::vector<DispatchResult> results(group.ranks());
    const Sequence prepare = group.NextSequence();
    const Sequence publish = group.NextSequence();
    for (int32_t rank = 0; rank < group.ranks(); ++rank) group.Poison(rank);
    group.OnAll([&](int32_t rank) {
      results[rank].status = PublishOn(group, rank, {prepare, publish}, inputs[rank], factors[rank],
                                       metadata, results[rank]);
      return results[rank].status;
    });
    return results;
  }

  std::mt19937_64 random_;

 private:
  absl::Status PublishOn(RankGroup& group, int32_t rank, const std::vector<Sequence>& at,
                         const RankInput& input, const Factors& factors, Metadata metadata,
                         DispatchResult& result);
};

absl::Status ProducerContractTest::PublishOn(RankGroup& group, int32_t rank,
                                             const std::vector<Sequence>& at,
                                             const RankInput& input, const Factors& factors,
                                             Metadata metadata, DispatchResult& result) {
  Backend& on = backend(rank);
  DirectPublication& path = *group.path(rank).publication();
  const DeviceArray<int32_t> routes(on, input.topk_experts);
  const DeviceArray<float> weights(on, input.route_weights);
  const DeviceFactors product(on, factors);
  const auto target = path.PrepareDispatch(at[0], {routes.data(), input.token_count});
  if (!target.ok()) return target.status();
  absl::Status status;
  if (metadata == Metadata::kBefore) status = path.PreparePublication(*target, weights.data());
  if (metadata == Metadata::kBeside)
    status = path.PreparePublicationBeside(*target, weights.data());
  if (status.ok()) status = group.path(rank).producer()->ProduceInto(product.input, *target);
  if (!status.ok()) return status;
  if (metadata == Metadata::kAfter) status = path.PreparePublication(*target, weights.data());
  if (!status.ok()) return status;
  auto plan = path.Publish(at[1], *target, {});
  if (!plan.ok()) return plan.status();
  const auto tensors = group.path(rank).ReadPlan(*plan);
  if (!tensors.ok()) return tensors.status();
  result.tensors = *tensors;
  result.plan = *std::move(plan);
  result.rows = group.ReadRows(rank);
  result.row_weights = group.ReadRowWeights(rank);
  return absl::OkStatus();
}

// Within what fp32 sums and one rounding to bf16 may be off; the rest of the output is untouched.
void ExpectProduct(const Factors& factors, int32_t hidden, const std::vector<BFloat16>& output) {
  const std::vector<double> a = ValuesOf(factors.a);
  const std::vector<double> b = ValuesOf(factors.b);
  const std::vector<double> is = ValuesOf(output);
  for (int32_t token = 0; token < factors.token_count; ++token) {
    for (int32_t column = 0; column < hidden; ++column) {
      double sum = 0;
      double magnitude = 0;
      for (int32_t i = 0; i < factors.depth; ++i) {
        const double product =
            a[size_t{0} + token * factors.depth + i] * b[static_cast<size_t>(i) * hidden + column];
        sum += product;
        magnitude += std::abs(product);
      }
      const double bound = std::ldexp(std::abs(sum), -8) +
                           std::ldexp(magnitude * factors.depth, -22) + std::ldexp(1.0, -100);
      ASSERT_NEAR(is[static_cast<size_t>(token) * hidden + column], sum, bound)
          << "token " << token << ", column " << column;
    }
  }
  const auto begin = output.begin() + static_cast<std::ptrdiff_t>(factors.token_count) * hidden;
  EXPECT_TRUE(std::all_of(begin, output.end(), [](BFloat16 value) { return value.bits == 0xA5A5; }))
      << "rows past the product were written";
}

// All of the shard, the poison between the rows included.
void ExpectSameShards(const std::vector<DispatchResult>& some,
                      const std::vector<DispatchResult>& wanted) {
  for (size_t rank = 0; rank < some.size(); ++rank) {
    SCOPED_TRACE(testing::Message() << "rank " << rank);
    ASSERT_TRUE(some[rank].status.ok()) << some[rank].status;
    ASSERT_TRUE(wanted[rank].status.ok()) << wanted[rank].status;
    EXPECT_EQ(some[rank].tensors.dst, wanted[rank].tensors.dst);
    EXPECT_EQ(some[rank].tensors.cu_seqlens, wanted[rank].tensors.cu_seqlens);
    EXPECT_EQ(some[rank].tensors.duplicate_rows, wanted[rank].tensors.duplicate_rows);
    EXPECT_TRUE(some[rank].rows == wanted[rank].rows);
    const std::vector<float>& weights = some[rank].row_weights;
    ASSERT_EQ(weights.size(), wanted[rank].row_weights.size());
    EXPECT_TRUE(weights.empty() || std::memcmp(weights.data(), wanted[rank].row_weights.data(),
                                               weights.size() * sizeof(float)) == 0);
  }
}

TEST_P(ProducerContractTest, BothEpiloguesLeaveTheSameBits) {
  const int groups = GetParam().random_groups / 3;
  OnRandomGroups(random_, groups, GetParam().max_ranks, [&](int i, const GroupInput& input) {
    RankGroup group(backends(), OptionsFor(input.geometry, 8 * (1 + i % 5)));
    std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), i);
    const auto factors = RandomFactors(group, inputs, 8 * (1 + i % 6));
    const auto produced = Produce(group, factors);
    for (int32_t rank = 0; rank < group.ranks(); ++rank) {
      ExpectProduct(factors[rank], group.hidden(), produced[rank]);
      inputs[rank].hidden = produced[rank];
    }
    const std::vector<DispatchResult> dispatched = group.Dispatch(inputs, Copy::kInPlace);
    const Metadata metadata =
        std::vector{Metadata::kBefore, Metadata::kBeside, Metadata::kAfter}[i % 3];
    ExpectSameShards(Publish(group, inputs, factors, metadata), dispatched);
  });
}

// Several tiles, and parts of tiles, in every direction; ranks without tokens.
TEST_P(ProducerContractTest, ProductsOfManyTiles) {
  const Geometry geometry = {.ranks = 3, .experts = 12, .tokens = 300, .topk = 5, .slots = 4};
  for (const int32_t depth : {8, 104, 512}) {
    GroupInput input = PlainGroup(random_, geometry);
    input.token_counts = {300, 0, 129};
    RankGroupOptions options = OptionsFor(geometry, 392);
    options.threads = 2;
    RankGroup group(backends(), options);
    std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), depth);
    const auto factors = RandomFactors(group, inputs, depth);
    const auto produced = Produce(group, factors);
    for (int32_t rank = 0; rank < group.ranks(); ++rank) {
      ExpectProduct(factors[rank], group.hidden(), produced[rank]);
      inputs[rank].hidden = produced[rank];
    }
    const std::vector<DispatchResult> dispatched = group.Dispatch(inputs, Copy::kInPlace);
    ExpectSameShards(Publish(group, inputs, factors, Metadata::kBeside), dispatched);
  }
}

// With no wait of the host between them: each publication's metadata beside its producer, into the
// shard that the last one was summed from.
TEST_P(ProducerContractTest, QueuedPublicationsGiveTheBitsOfDispatches) {
  const Geometry geometry = {.ranks = std::min(4, GetParam().max_ranks),
                             .experts = 8,
                             .tokens = 200,
                             .topk = 3,
                             .slots = 2,
                             .token_padding = 8};
  const GroupInput input = PlainGroup(random_, geometry);
  RankGroup group(queueing_backends(), OptionsFor(geometry, 264));
  const std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), 1);
  const auto factors = RandomFactors(group, inputs, group.hidden());
  constexpr int kSteps = 5;
  // What a step sums is what the next one multiplies.
  const auto run = [&](bool publishes) {
    std::vector<Sequence> sequences;
    for (int i = 0; i < 3 * kSteps; ++i) sequences.push_back(group.NextSequence());
    std::vector<std::vector<BFloat16>> outputs(geometry.ranks);
    ExpectOk(group.OnAll([&](int32_t rank) -> absl::Status {
      DataPath& path = group.path(rank);
      const DeviceFactors product(backend(rank), factors[rank]);
      const DeviceArray<int32_t> routes(backend(rank), inputs[rank].topk_experts);
      const DeviceArray<BFloat16> hidden(backend(rank), inputs[rank].hidden.size());
      for (int step = 0; step < kSteps; ++step) {
        const Sequence* at = &sequences[3 * step];
        absl::StatusOr<PlanPtr> plan = PlanPtr();
        absl::Status status;
        if (publishes) {
          DirectPublication& publication = *path.publication();
          const auto target = publication.PrepareDispatch(at[0], {routes.data(), geometry.tokens});
          if (!target.ok()) return target.status();
          status = publication.PreparePublicationBeside(*target, nullptr);
          if (status.ok()) status = path.producer()->ProduceInto(product.input, *target);
          if (status.ok()) plan = publication.Publish(at[1], *target, {});
        } else {
          status = path.Barrier(at[0]);
          if (status.ok()) status = path.producer()->Produce(product.input, hidden.data());
          if (status.ok()) {
            plan =
                path.Dispatch(at[1], {hidden.data(), routes.data(), nullptr, geometry.tokens}, {});
          }
        }
        if (!status.ok() || !plan.ok()) return status.ok() ? plan.status() : status;
        status = path.Combine(at[2], *plan, {path.rows(), nullptr}, {product.a.data(), nullptr});
        if (!status.ok()) return status;
      }
      const absl::Status status = path.Synchronize();
      outputs[rank] = product.a.Get();
      return status;
    }));
    return outputs;
  };
  const auto dispatched = run(false);
  EXPECT_NE(dispatched[0], factors[0].a);
  EXPECT_EQ(run(true), dispatched);
}

TEST_P(ProducerContractTest, WhatDoesNotFitIsRefusedAndTheTargetLivesOn) {
  const Geometry geometry = {.ranks = 1, .experts = 2, .tokens = 6, .topk = 2, .slots = 1};
  GroupInput input = PlainGroup(random_, geometry);
  input.token_counts = {5};
  RankGroup group(backends(), OptionsFor(geometry, 16));
  const std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), 1);
  const auto factors = RandomFactors(group, inputs, 24);
  DataPath& path = group.path(0);
  RowProducer& producer = *path.producer();
  const DeviceFactors product(backend(0), factors[0]);
  const DeviceArray<BFloat16> output(backend(0), size_t{6} * 16);
  const DeviceArray<int32_t> routes(backend(0), inputs[0].topk_experts);
  const auto target = path.publication()->PrepareDispatch(group.NextSequence(), {routes.data(), 5});
  ASSERT_TRUE(target.ok()) << target.status();
  const auto refused = [&](auto change, const char* why) {
    ProductInput input = product.input;
    change(input);
    const absl::Status local = producer.Produce(input, output.data());
    EXPECT_EQ(local.code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_NE(std::string(local.message()).find(why), std::string::npos) << local;
    const absl::Status direct = producer.ProduceInto(input, *target);
    EXPECT_EQ(direct.code(), absl::StatusCode::kInvalidArgument) << why;
  };
  refused([](ProductInput& wrong) { wrong.depth = 12; }, "depth of the product is 12");
  refused([](ProductInput& wrong) { wrong.depth = 0; }, "depth of the product is 0");
  refused([](ProductInput& wrong) { wrong.token_count = 7; }, "7");
  refused([](ProductInput& wrong) { wrong.a = nullptr; }, "a is null, expected 5 rows of 24");
  refused([](ProductInput& wrong) { wrong.b = nullptr; }, "b is null, expected 24 rows of 16");
  refused([&](ProductInput& wrong) { wrong.a = path.rows(); }, "a lies in the shard");
  EXPECT_EQ(producer.Produce(product.input, nullptr).message(), "output is null, expected 5 rows");
  EXPECT_EQ(producer.Produce(product.input, path.rows()).code(),
            absl::StatusCode::kInvalidArgument);
  ProductInput fewer = product.input;
  fewer.token_count = 4;
  EXPECT_EQ(producer.ProduceInto(fewer, *target).message(),
            "the product has 4 rows, its target has 5 tokens");
  EXPECT_TRUE(producer.ProduceInto(product.input, *target).ok());
  path.publication()->DropTarget();
  EXPECT_EQ(producer.ProduceInto(product.input, *target).code(),
            absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Backends, ProducerContractTest, testing::ValuesIn(PublishingCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
