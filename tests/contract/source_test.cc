// The owner-sharded source on every backend: what is materialised, and its plan, are bit for bit
// those of a dispatch; a view says where each row comes from; and what is off costs no memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "kernels/layout/shard_layout.h"
#include "kernels/layout/source_layout.h"
#include "kernels/owner_source.h"
#include "kernels/plan/destination.h"
#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/forwarding_backend.h"
#include "tests/contract/kept_arrays.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/same_results.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

// How rows get into the source shard.
enum class Owner { kStores, kInPlace };

struct Way {
  Owner owner;
  Copy copy;
};

template <typename T>
void WriteBytes(Backend& backend, T* to, const std::vector<T>& values, size_t count) {
  const auto bytes =
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()), count * sizeof(T));
  EXPECT_TRUE(backend.CopyIn(reinterpret_cast<std::byte*>(to), bytes).ok());
}

template <typename T>
std::vector<T> ReadBytes(Backend& backend, const T* from, size_t count) {
  std::vector<T> values(count);
  const auto bytes = absl::MakeSpan(reinterpret_cast<std::byte*>(values.data()), count * sizeof(T));
  EXPECT_TRUE(backend.CopyOut(bytes, reinterpret_cast<const std::byte*>(from)).ok());
  return values;
}

class SourceContractTest : public ContractTest {
 protected:
  SourceContractTest() : random_(TestSeed()) {}

  RankGroupOptions OptionsFor(const Geometry& geometry) const {
    RankGroupOptions options;
    options.geometry = geometry;
    options.own_mappings = GetParam().own_mappings && geometry.ranks <= kMostOwnMappings;
    options.sources = true;
    return options;
  }

  // Tokens past the count keep what lies there.
  void WriteInPlace(RankGroup& group, int32_t rank, const RankInput& input) {
    OwnerSource& source = *group.path(rank).source();
    const size_t tokens = input.token_count;
    WriteBytes(backend(rank), source.source_hidden(), input.hidden, tokens * group.hidden());
    WriteBytes(backend(rank), source.source_route_weights(), input.route_weights,
               tokens * group.geometry().topk);
  }

  absl::StatusOr<SourcePtr> PrepareOn(RankGroup& group, int32_t rank, Sequence sequence,
                                      const RankInput& input, Owner owner) {
    SourceInput in = {kept_.Add(backend(rank), input.topk_experts), input.token_count};
    if (owner == Owner::kStores) {
      in.hidden = kept_.Add(backend(rank), input.hidden);
      in.route_weights = kept_.Add(backend(rank), input.route_weights);
    } else {
      WriteInPlace(group, rank, input);
    }
    return group.path(rank).source()->PrepareSource(sequence, in);
  }

  // Fills in the rank's part of what RankGroup::Dispatch gives.
  absl::Status MaterialiseOn(RankGroup& group, int32_t rank, Sequence sequence,
                             const SourcePtr& source, Copy copy, DispatchResult& result) {
    const auto rows = static_cast<size_t>(group.geometry().logical_rows());
    const DeviceArray<BFloat16> rows_out(backend(rank), rows * group.hidden());
    const DeviceArray<float> weights_out(backend(rank), rows);
    DispatchOutput output;
    const bool copied = copy == Copy::kCopied;
    if (copied) output = {rows_out.data(), weights_out.data()};
    auto plan = group.path(rank).source()->Materialise(sequence, source, output);
    if (!plan.ok()) return plan.status();
    EXPECT_EQ(*plan, source->plan());
    const auto tensors = group.path(rank).ReadPlan(*plan);
    if (!tensors.ok()) return tensors.status();
    result.plan = *std::move(plan);
    result.tensors = *tensors;
    result.rows = copied ? rows_out.Get() : group.ReadRows(rank);
    result.row_weights = copied ? weights_out.Get() : group.ReadRowWeights(rank);
    return absl::OkStatus();
  }

  // What RankGroup::Dispatch does, by the source; the owners' rows are spoilt when it has ended.
  std::vector<DispatchResult> Materialise(RankGroup& group, const std::vector<RankInput>& inputs,
                                          const Way& way) {
    std::vector<DispatchResult> results(group.ranks());
    const Sequence prepare = group.NextSequence();
    const Sequence materialise = group.NextSequence();
    for (int32_t rank = 0; rank < group.ranks(); ++rank) group.Poison(rank);
    group.OnAll([&](int32_t rank) {
      DispatchResult& result = results[rank];
      const auto source = PrepareOn(group, rank, prepare, inputs[rank], way.owner);
      result.status = source.status();
      if (!source.ok()) return result.status;
      EXPECT_EQ((*source)->tag(), (ObjectTag{BufferId(3), Generation(7), prepare}));
      result.status = MaterialiseOn(group, rank, materialise, *source, way.copy, result);
      const RankInput spoilt = {std::vector<BFloat16>(inputs[rank].hidden.size()),
                                {},
                                std::vector<float>(inputs[rank].route_weights.size()),
                                inputs[rank].token_count};
      WriteInPlace(group, rank, spoilt);
      return result.status;
    });
    kept_.Clear();
    return results;
  }

  void ExpectEqualToDispatch(const GroupInput& input, RankGroup& group, uint32_t salt,
                             const Way& way) {
    const std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), salt);
    const std::vector<DispatchResult> dispatched = group.Dispatch(inputs, way.copy);
    const std::vector<DispatchResult> materialised = Materialise(group, inputs, way);
    ExpectSameResults(materialised, dispatched);
    if (HasFailure()) return;
    ExpectSameAfterwards(group, input, ~salt, way.copy, random_, materialised, dispatched);
  }

  std::mt19937_64 random_;
  KeptArrays kept_;
};

// 500 of them where a dispatch has 300.
TEST_P(SourceContractTest, RandomGroupsAreEqualToDispatch) {
  const int groups = GetParam().random_groups * 5 / 3;
  OnRandomGroups(random_, groups, GetParam().max_ranks, [&](int i, GroupInput input) {
    RankGroup group(backends(), OptionsFor(input.geometry));
    // Twice with other routes: what the first has left must not matter.
    for (int round = 0; round < 2; ++round) {
      const Way way = {(i + round) % 2 == 0 ? Owner::kStores : Owner::kInPlace,
                       (i / 2 + round) % 2 == 0 ? Copy::kInPlace : Copy::kCopied};
      ExpectEqualToDispatch(input, group, 2 * i + round, way);
      for (int32_t rank = 0; rank < input.geometry.ranks; ++rank) {
        const auto routes =
            input.topk_experts.begin() + static_cast<size_t>(rank) * input.geometry.routes();
        std::shuffle(routes, routes + input.token_counts[rank] * input.geometry.topk, random_);
      }
    }
  });
}

TEST_P(SourceContractTest, GoldenVectorsOfTheRules) {
  GroupInput g1;
  g1.geometry = {.ranks = 2, .experts = 4, .tokens = 3, .topk = 2, .slots = 2, .token_padding = 4};
  g1.topk_experts = {0, 1, 0, 2, 1, 0, /**/ 0, 3, 1, 0, 2, 0};
  g1.token_counts = {3, 3};
  RankGroup group(backends(), OptionsFor(g1.geometry));
  const Way way = {Owner::kStores, Copy::kInPlace};
  const auto results = Materialise(group, NamedInputs(g1, group.hidden(), 1), way);
  ASSERT_TRUE(results[0].status.ok() && results[1].status.ok());
  EXPECT_EQ(results[0].tensors.dst, (std::vector<int32_t>{0, -5, 1, 18, 5, -3}));
  EXPECT_EQ(results[1].tensors.dst, (std::vector<int32_t>{26, -23, 6, 27, 19, -29}));
  EXPECT_EQ(results[1].tensors.cu_seqlens, (std::vector<int32_t>{0, 0, 4, 8, 12, 12}));
  ExpectEqualToDispatch(g1, group, 2, way);
}

TEST_P(SourceContractTest, LargeRowsManyExpertsAndEmptyRanks) {
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
    const Way way = {Owner::kStores, Copy::kCopied};
    ExpectEqualToDispatch(input, group, 5, way);
    input.token_counts.back() = 0;
    ExpectEqualToDispatch(input, group, 6, way);
    // One rank's tokens, masked in part: the others have none.
    std::fill(input.token_counts.begin(), input.token_counts.end(), 0);
    input.token_counts.front() = geometry.tokens;
    std::fill_n(input.topk_experts.begin(), geometry.routes() / 2, -1);
    ExpectEqualToDispatch(input, group, 7, way);
  }
}

// A consumer that resolves rows by the view finds what would have been materialised.
TEST_P(SourceContractTest, AViewSaysWhereEachRowComesFrom) {
  const int32_t ranks = std::min(4, GetParam().max_ranks);
  const GroupInput input = PlainGroup(
      random_,
      {.ranks = ranks, .experts = 8, .tokens = 20, .topk = 3, .slots = 2, .token_padding = 4});
  RankGroup group(backends(), OptionsFor(input.geometry));
  const std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), 3);
  const std::vector<DispatchResult> dispatched = group.Dispatch(inputs, Copy::kInPlace);
  const Sequence sequence = group.NextSequence();
  const Sequence read = group.NextSequence();
  const int32_t hidden = group.hidden();
  ExpectOk(group.OnAll([&](int32_t rank) -> absl::Status {
    const auto source = PrepareOn(group, rank, sequence, inputs[rank], Owner::kStores);
    if (!source.ok()) return source.status();
    const auto taken = (*source)->Take({Access::kLoad});
    if (!taken.ok()) return taken.status();
    const SourceView& view = **taken;
    const auto rows = static_cast<size_t>(input.geometry.logical_rows());
    const std::vector<int32_t> origins = ReadBytes(backend(rank), view.origins, rows);
    const DispatchResult& wanted = dispatched[rank];
    const auto is_masked = [](int32_t origin) { return IsMasked(origin); };
    EXPECT_EQ(static_cast<int32_t>(rows) - std::count_if(origins.begin(), origins.end(), is_masked),
              wanted.tensors.load[rank]);
    std::vector<int32_t> further;
    for (size_t row = 0; row < rows; ++row) {
      if (IsMasked(origins[row])) continue;
      if (!IsPrimary(origins[row])) further.push_back(static_cast<int32_t>(row));
      const int32_t owner = DecodeRow(origins[row]) / view.routes;
      const int32_t route = DecodeRow(origins[row]) % view.routes;
      const int32_t token = route / input.geometry.topk;
      const std::vector<BFloat16> there = ReadBytes(
          backend(rank), view.hidden[owner] + static_cast<size_t>(token) * hidden, hidden);
      EXPECT_TRUE(std::equal(there.begin(), there.end(), wanted.rows.begin() + row * hidden));
      EXPECT_EQ(ReadBytes(backend(rank), view.route_weights[owner] + route, 1)[0],
                wanted.row_weights[row]);
    }
    std::vector<int32_t> duplicates = wanted.tensors.duplicate_rows;
    std::sort(duplicates.begin(), duplicates.end());
    EXPECT_EQ(further, duplicates);
    return group.path(rank).Barrier(read);
  }));
}

TEST_P(SourceContractTest, AConsumerIsToldWhatAMappingDoesNotAllow) {
  const GroupInput input = PlainGroup(
      random_, {.ranks = 2, .experts = 4, .tokens = 6, .topk = 2, .slots = 2, .token_padding = 4});
  RankGroup group(backends(), OptionsFor(input.geometry));
  const std::vector<RankInput> inputs = NamedInputs(input, group.hidden(), 3);
  const Sequence sequence = group.NextSequence();
  ExpectOk(group.OnAll([&](int32_t rank) -> absl::Status {
    const auto source = PrepareOn(group, rank, sequence, inputs[rank], Owner::kStores);
    if (!source.ok()) return source.status();
    const auto written = (*source)->Take({Access::kLoad, Access::kStore});
    EXPECT_EQ(written.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(written.status().message()),
                HasSubstr(absl::StrCat("the source shard of rank ", 1 - rank,
                                       " allows load, bulk_copy, the consumer needs load, store")));
    return (*source)->Take({Access::kLoad, Access::kBulkCopy}).status();
  }));
}

// One behind the other with no wait of the host between them, each into the shard that the last one
// was summed from, and out of a source that is stored anew.
TEST_P(SourceContractTest, QueuedSourcesGiveTheBitsOfDispatches) {
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
  const auto run = [&](bool by_source) {
    std::vector<Sequence> sequences;
    for (int i = 0; i < 3 * kSteps; ++i) sequences.push_back(group.NextSequence());
    std::vector<std::vector<BFloat16>> outputs(geometry.ranks);
    ExpectOk(group.OnAll([&](int32_t rank) -> absl::Status {
      DataPath& path = group.path(rank);
      OwnerSource& owner = *path.source();
      const DeviceArray<BFloat16> hidden(backend(rank), inputs[rank].hidden);
      const DeviceArray<int32_t> routes(backend(rank), inputs[rank].topk_experts);
      for (int step = 0; step < kSteps; ++step) {
        const Sequence* at = &sequences[3 * step];
        absl::StatusOr<PlanPtr> plan = PlanPtr();
        absl::Status status;
        if (by_source) {
          const auto source =
              owner.PrepareSource(at[0], {routes.data(), geometry.tokens, hidden.data()});
          if (!source.ok()) return source.status();
          plan = owner.Materialise(at[1], *source, {});
        } else {
          status = path.Barrier(at[0]);
          if (!status.ok()) return status;
          plan = path.Dispatch(at[1], {hidden.data(), routes.data(), nullptr, geometry.tokens}, {});
        }
        if (!plan.ok()) return plan.status();
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

// What is allocated, by size.
class CountingBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  absl::StatusOr<std::unique_ptr<Memory>> AllocateShared(size_t size_bytes,
                                                         PeerAccess access) override {
    ++sizes[size_bytes];
    return ForwardingBackend::AllocateShared(size_bytes, access);
  }
  absl::StatusOr<std::unique_ptr<Memory>> AllocatePrivate(size_t size_bytes) override {
    ++sizes[size_bytes];
    return ForwardingBackend::AllocatePrivate(size_bytes);
  }
  std::map<size_t, int> sizes;
};

TEST_P(SourceContractTest, WhereItIsOffNothingMoreIsAllocated) {
  RankGroupOptions options = OptionsFor(
      {.ranks = 2, .experts = 4, .tokens = 3000, .topk = 2, .slots = 2, .token_padding = 4});
  const SourceLayout source = SourceLayout::Create(options.geometry, options.hidden);
  // Rows, weights and destinations, up to whole pages.
  const size_t least = 3000 * (options.hidden * sizeof(BFloat16) + 2 * 2 * sizeof(float));
  EXPECT_GE(source.size_bytes, least);
  EXPECT_LT(source.size_bytes, least + 2 * kHostGranularityBytes);
  std::map<size_t, int> sizes[2];
  for (const bool on : {false, true}) {
    CountingBackend counting(backend(0));
    options.sources = on;
    RankGroup group(counting, options);
    EXPECT_EQ(group.path(0).source() != nullptr, on);
    sizes[on] = counting.sizes;
  }
  sizes[0][source.size_bytes] += 2;
  EXPECT_EQ(sizes[0], sizes[1]);
}

INSTANTIATE_TEST_SUITE_P(Backends, SourceContractTest, testing::ValuesIn(PublishingCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
