// prefetch_weights and run_experts on every backend: what lands in slots, who is told that weights
// are stale, and the feed-forward against a reference in fp64.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>

#include "kernels/host/host_backend.h"
#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"
#include "tests/testing/moe_reference.h"

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int32_t kLayer = 3;
constexpr uint64_t kVersion = 11;
constexpr double kBound = 2e-4;
// Fixed: where the reference lies next to a tie, fp32 sums round the other way, and a large element
// that does so takes a good part of the bound by itself. Random samples of this size keep it, but
// for about one in a thousand.
constexpr uint64_t kSeed = 20;

void Append(std::vector<double>& to, const std::vector<double>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

std::vector<ExpertBits> RandomExperts(std::mt19937_64& random, int32_t experts,
                                      const WeightsShape& shape) {
  // Sums over the depth stay near one.
  const auto matrix = [&](int32_t depth) {
    return NormalNumbers(random, shape.matrix_elements(), 1.0 / std::sqrt(depth));
  };
  std::vector<ExpertBits> result;
  for (int32_t i = 0; i < experts; ++i) {
    result.push_back({matrix(shape.hidden), matrix(shape.hidden), matrix(shape.intermediate)});
  }
  return result;
}

// A dispatched group with loaded experts: every route goes to the experts of rank 0 and 1, so that
// the other ranks need replicas.
class ExpertsContractTest : public ContractTest {
 protected:
  void Start(int32_t slots, const WeightsShape& shape = {24, 40}, int threads = 1) {
    StartOn(backends(), slots, shape, threads);
  }
  void StartOn(const RankBackends& on, int32_t slots, const WeightsShape& shape, int threads) {
    random_.seed(kSeed);
    geometry_ = {
        .ranks = 4, .experts = 8, .tokens = 400, .topk = 3, .slots = slots, .token_padding = 8};
    input_ = PlainGroup(random_, geometry_);
    for (int32_t& expert : input_.topk_experts) expert /= 2;
    RankGroupOptions options;
    options.geometry = geometry_;
    options.hidden = shape.hidden;
    options.own_mappings = GetParam().own_mappings;
    options.threads = threads;
    group_ = std::make_unique<RankGroup>(on, options);
    store_ = std::make_unique<ExpertStore>(on, geometry_, shape, options.own_mappings);
    experts_ = RandomExperts(random_, geometry_.experts, shape);
    values_.clear();
    for (const ExpertBits& expert : experts_) values_.push_back(ValuesOf(expert));
    store_->Load(kLayer, kVersion, experts_);
    std::vector<RankInput> inputs = NamedInputs(input_, shape.hidden, 1);
    for (RankInput& rank : inputs) rank.hidden = NormalNumbers(random_, rank.hidden.size(), 1.0);
    made_ = group_->Dispatch(inputs, Copy::kInPlace);
    for (const DispatchResult& result : made_) ASSERT_TRUE(result.status.ok()) << result.status;
  }

  std::vector<absl::Status> Prefetch(int32_t layer, uint64_t version) {
    const Sequence sequence = group_->NextSequence();
    return group_->OnAll([&](int32_t rank) {
      return group_->path(rank).PrefetchWeights(sequence, made_[rank].plan,
                                                store_->WeightsOf(rank, layer, version));
    });
  }
  int32_t ExpertInSlot(int32_t rank, int32_t slot) {
    return made_[rank].tensors.experts_to_copy[rank * geometry_.slots + slot];
  }
  // The expert of a group of a rank, -1 for an empty slot.
  int32_t ExpertOf(int32_t rank, int32_t group) {
    return group < geometry_.experts ? group : ExpertInSlot(rank, group - geometry_.experts);
  }
  void ExpectSlots(int32_t layer, uint64_t version);
  std::vector<double> OutputsOn(const RankBackends& on);
  std::vector<double> RowValues(const std::vector<BFloat16>& rows, int32_t row) {
    const auto first = rows.begin() + static_cast<size_t>(row) * group_->hidden();
    return ValuesOf(std::vector<BFloat16>(first, first + group_->hidden()));
  }
  std::vector<double> ExpectedRow(int32_t rank, int32_t group, int32_t row, bool weighted) {
    return RunExpertByTheRules(RowValues(made_[rank].rows, row), values_[ExpertOf(rank, group)],
                               weighted ? made_[rank].row_weights[row] : 1.0);
  }
  void ExpectExpertRows(const std::vector<std::vector<BFloat16>>& outputs, bool weighted);

  std::mt19937_64 random_;
  Geometry geometry_;
  GroupInput input_;
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<ExpertStore> store_;
  std::vector<ExpertBits> experts_;   // [E]
  std::vector<ExpertValues> values_;  // [E] the same
  std::vector<DispatchResult> made_;
};

void ExpertsContractTest::ExpectSlots(int32_t layer, uint64_t version) {
  int replicas = 0;
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    for (int32_t slot = 0; slot < geometry_.slots; ++slot) {
      SCOPED_TRACE(testing::Message() << "rank " << rank << " slot " << slot);
      const int32_t expert = ExpertInSlot(rank, slot);
      if (expert < 0) {
        EXPECT_EQ(store_->tag(rank, slot).version, 0u);
        continue;
      }
      ++replicas;
      EXPECT_EQ(store_->tag(rank, slot), (SlotTag{version, layer, expert}));
      EXPECT_TRUE(store_->slot(rank, slot) == experts_[expert]);
    }
  }
  EXPECT_EQ(replicas > 0, geometry_.slots > 0);
}

// Every row of every group against the reference; padding must be zero.
void ExpertsContractTest::ExpectExpertRows(const std::vector<std::vector<BFloat16>>& outputs,
                                           bool weighted) {
  std::vector<double> actual;
  std::vector<double> expected;
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    int32_t begin = 0;
    for (int32_t group = 0; group < geometry_.groups(); ++group) {
      const int32_t end = made_[rank].tensors.cu_seqlens[group];
      const int32_t padding = made_[rank].tensors.zero_fill_ranges[2 * group + 1];
      for (int32_t row = begin; row < end - padding; ++row) {
        Append(actual, RowValues(outputs[rank], row));
        Append(expected, ExpectedRow(rank, group, row, weighted));
      }
      for (int32_t row = end - padding; row < end; ++row) {
        EXPECT_EQ(RowValues(outputs[rank], row), std::vector<double>(group_->hidden(), 0.0))
            << "padding row " << row << " of rank " << rank;
      }
      begin = end;
    }
  }
  EXPECT_EQ(expected.size(), input_.topk_experts.size() * group_->hidden());
  EXPECT_LE(RelativeError(actual, expected), kBound);
}

TEST_P(ExpertsContractTest, PrefetchFillsSlotsAndTagsThem) {
  for (int32_t slots : {0, 1, 2, 5}) {
    SCOPED_TRACE(testing::Message() << slots << " slots");
    Start(slots);
    ExpectOk(Prefetch(kLayer, kVersion));
    ExpectSlots(kLayer, kVersion);
  }
}

TEST_P(ExpertsContractTest, UnusedSlotsKeepWhatTheyHold) {
  Start(2);
  ExpectOk(Prefetch(kLayer, kVersion));
  // A plan in which every rank keeps to its own experts needs no replica at all.
  GroupInput local = input_;
  for (size_t i = 0; i < local.topk_experts.size(); ++i) {
    local.topk_experts[i] = static_cast<int32_t>(i / geometry_.routes()) * 2;
  }
  const std::vector<DispatchResult> first = made_;
  made_ = group_->Dispatch(NamedInputs(local, group_->hidden(), 2), Copy::kInPlace);
  ExpectOk(Prefetch(kLayer, kVersion));
  made_ = first;
  ExpectSlots(kLayer, kVersion);
}

TEST_P(ExpertsContractTest, RunsExpertsFromSlotsHomesAndInPlaceOfPeers) {
  for (int32_t slots : GetParam().SlotsToRun({0, 1, 2, 5}, 2)) {
    for (const bool weighted : {true, false}) {
      SCOPED_TRACE(testing::Message() << slots << " slots, weighted " << weighted);
      Start(slots);
      ExpectOk(Prefetch(kLayer, kVersion));
      std::vector<std::vector<BFloat16>> outputs(geometry_.ranks);
      ExpectOk(group_->OnAll([&](int32_t rank) {
        DataPath& path = group_->path(rank);
        const DeviceArray<BFloat16> output(backend(rank), made_[rank].rows.size());
        RunExpertsInput in{path.rows(), weighted ? path.row_weights() : nullptr, output.data()};
        absl::Status status =
            path.RunExperts(made_[rank].plan, store_->WeightsOf(rank, kLayer, kVersion), in);
        outputs[rank] = output.Get();
        return status;
      }));
      ExpectExpertRows(outputs, weighted);
      for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
        EXPECT_EQ(group_->ReadRows(rank), made_[rank].rows) << "the input has changed";
      }
    }
  }
}

TEST_P(ExpertsContractTest, InPlaceAndSharedByThreadsGiveTheSameBits) {
  Start(2, {136, 72}, /*threads=*/3);
  ExpectOk(Prefetch(kLayer, kVersion));
  std::vector<std::vector<BFloat16>> outputs;
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    DataPath& path = group_->path(rank);
    const ExpertWeights weights = store_->WeightsOf(rank, kLayer, kVersion);
    const DeviceArray<BFloat16> output(backend(rank), made_[rank].rows.size());
    ASSERT_TRUE(
        path.RunExperts(made_[rank].plan, weights, {path.rows(), path.row_weights(), output.data()})
            .ok());
    ASSERT_TRUE(
        path.RunExperts(made_[rank].plan, weights, {path.rows(), path.row_weights(), path.rows()})
            .ok());
    outputs.push_back(output.Get());
    const size_t used = made_[rank].tensors.cu_seqlens.back() * group_->hidden();
    std::vector<BFloat16> copied = outputs.back();
    std::vector<BFloat16> in_place = group_->ReadRows(rank);
    copied.resize(used);
    in_place.resize(used);
    EXPECT_TRUE(copied == in_place);
  }
  ExpectExpertRows(outputs, true);
}

// Of all ranks, computed in place, the used rows.
std::vector<double> ExpertsContractTest::OutputsOn(const RankBackends& on) {
  StartOn(on, 2, {136, 72}, 1);
  ExpectOk(Prefetch(kLayer, kVersion));
  std::vector<double> outputs;
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    DataPath& path = group_->path(rank);
    absl::Status status =
        path.RunExperts(made_[rank].plan, store_->WeightsOf(rank, kLayer, kVersion),
                        {path.rows(), path.row_weights(), path.rows()});
    EXPECT_TRUE(status.ok()) << status;
    std::vector<BFloat16> rows = group_->ReadRows(rank);
    rows.resize(made_[rank].tensors.cu_seqlens.back() * group_->hidden());
    Append(outputs, ValuesOf(rows));
  }
  return outputs;
}

TEST_P(ExpertsContractTest, AgreesWithTheHostBackend) {
  if (backend(0).info().name == "host") GTEST_SKIP() << "this is the host backend";
  const std::unique_ptr<Backend> host = CreateHostBackend();
  const std::vector<double> expected = OutputsOn(*host);
  const double error = RelativeError(OutputsOn(backends()), expected);
  std::printf("relative error: %.3g to the host backend\n", error);
  EXPECT_LE(error, 3e-4);
}

TEST_P(ExpertsContractTest, ANanRowStaysAlone) {
  Start(2);
  ExpectOk(Prefetch(kLayer, kVersion));
  DataPath& path = group_->path(0);
  const auto run = [&](const std::vector<BFloat16>& rows) {
    const DeviceArray<BFloat16> input(backend(0), rows);
    const DeviceArray<BFloat16> output(backend(0), rows.size());
    EXPECT_TRUE(path.RunExperts(made_[0].plan, store_->WeightsOf(0, kLayer, kVersion),
                                {input.data(), nullptr, output.data()})
                    .ok());
    return output.Get();
  };
  std::vector<BFloat16> rows = made_[0].rows;
  const std::vector<BFloat16> before = run(rows);
  const size_t hidden = group_->hidden();
  const size_t used = made_[0].tensors.cu_seqlens.back() * hidden;
  rows[5] = BFloat16{0x7fc0};  // of row 0, which is never padding
  const std::vector<BFloat16> after = run(rows);
  for (size_t i = 0; i < used; ++i) {
    if (i / hidden == 0) {
      EXPECT_TRUE(std::isnan(ToFloat(after[i])));
    } else {
      EXPECT_EQ(after[i], before[i]) << "row " << i / hidden;
    }
  }
}

TEST_P(ExpertsContractTest, SlotsOfAnotherLayerAreRefused) {
  Start(2);
  ExpectOk(Prefetch(kLayer, kVersion));
  store_->Load(kLayer + 1, kVersion, experts_);
  int refused = 0;
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    DataPath& path = group_->path(rank);
    const DeviceArray<BFloat16> output(backend(rank), made_[rank].rows.size());
    const absl::Status status =
        path.RunExperts(made_[rank].plan, store_->WeightsOf(rank, kLayer + 1, kVersion),
                        {path.rows(), nullptr, output.data()});
    const int32_t expert = ExpertInSlot(rank, 0);
    if (expert < 0) {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    ++refused;
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("slot 0 holds layer 3 expert " + std::to_string(expert) +
                          " version 11, expected layer 4 expert " + std::to_string(expert) +
                          " version 11"));
    EXPECT_FALSE(path.last_error().has_value());
  }
  EXPECT_GT(refused, 0);
}

TEST_P(ExpertsContractTest, EmptySlotsAndStaleHomesAreRefused) {
  Start(2);
  const auto run = [&](int32_t rank) {
    DataPath& path = group_->path(rank);
    const DeviceArray<BFloat16> output(backend(rank), made_[rank].rows.size());
    return path.RunExperts(made_[rank].plan, store_->WeightsOf(rank, kLayer, kVersion),
                           {path.rows(), nullptr, output.data()});
  };
  ASSERT_GE(ExpertInSlot(3, 0), 0);
  EXPECT_THAT(std::string(run(3).message()), HasSubstr("slot 0 holds nothing, expected layer 3"));
  ExpectOk(Prefetch(kLayer, kVersion));
  // Rank 0 computes some of its own experts' routes.
  EXPECT_TRUE(run(0).ok());
  store_->SetHeader(0, kLayer, kVersion - 1);
  const absl::Status status = run(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("home rank 0 holds layer 3 version 10, expected layer 3 version 11"));
}

// Only those who need weights of the stale home are told, and nobody hangs or loses step.
TEST_P(ExpertsContractTest, StaleHomesFailThePrefetchOfThoseWhoNeedThem) {
  Start(2);
  for (int32_t home : {0, 1}) store_->SetHeader(home, kLayer, kVersion - 1);
  const std::vector<absl::Status> statuses = Prefetch(kLayer, kVersion);
  int stale = 0;
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    if (ExpertInSlot(rank, 0) < 0) {
      EXPECT_TRUE(statuses[rank].ok()) << statuses[rank];
      continue;
    }
    ++stale;
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(statuses[rank].message()),
                AllOf(HasSubstr("home rank"), HasSubstr("holds layer 3 version 10"),
                      HasSubstr("expected layer 3 version 11")));
    const absl::optional<ErrorRecord> record = group_->path(rank).last_error();
    ASSERT_TRUE(record.has_value());
    EXPECT_EQ(record->reason, static_cast<uint32_t>(AbortReason::kStaleWeights));
    EXPECT_EQ(record->expected, 11);
    EXPECT_EQ(record->seen, 10);
    EXPECT_EQ(store_->tag(rank, 0).version, 0u);
  }
  EXPECT_GT(stale, 0);
  for (int32_t home : {0, 1}) store_->SetHeader(home, kLayer, kVersion);
  ExpectOk(Prefetch(kLayer, kVersion));
  ExpectSlots(kLayer, kVersion);
}

TEST_P(ExpertsContractTest, BadWeightsAreRefused) {
  Start(2);
  const Sequence sequence = group_->NextSequence();
  const auto prefetch = [&](const std::function<void(ExpertWeights&)>& spoil) {
    ExpertWeights weights = store_->WeightsOf(0, kLayer, kVersion);
    spoil(weights);
    const absl::Status status = group_->path(0).PrefetchWeights(sequence, made_[0].plan, weights);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(prefetch([](ExpertWeights& w) { w.home[2] = nullptr; }),
              HasSubstr("home block of rank 2 is null"));
  EXPECT_THAT(prefetch([](ExpertWeights& w) { w.home.pop_back(); }), HasSubstr("3 home blocks"));
  EXPECT_THAT(prefetch([](ExpertWeights& w) { w.slots = nullptr; }), HasSubstr("2 slots"));
  EXPECT_THAT(prefetch([](ExpertWeights& w) { w.version = 0; }), HasSubstr("version is 0"));
  EXPECT_THAT(prefetch([](ExpertWeights& w) { w.shape.hidden = 32; }),
              HasSubstr("hidden size 32, the buffer has 24"));
  EXPECT_THAT(prefetch([](ExpertWeights& w) { w.shape.intermediate = 12; }),
              HasSubstr("intermediate size 12"));
}

TEST_P(ExpertsContractTest, OverlappingOutputIsRefused) {
  Start(2);
  ExpectOk(Prefetch(kLayer, kVersion));
  DataPath& path = group_->path(0);
  const DeviceArray<BFloat16> rows(backend(0), 2 * made_[0].rows.size());
  const absl::Status status =
      path.RunExperts(made_[0].plan, store_->WeightsOf(0, kLayer, kVersion),
                      {rows.data(), nullptr, rows.data() + group_->hidden()});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("output overlaps rows"));
}

INSTANTIATE_TEST_SUITE_P(Backends, ExpertsContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
