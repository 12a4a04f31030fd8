// reduce_gradients on every backend: sums against fp64 and, bit for bit, against the stated order;
// what is cleared and what is kept; and how it ends early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <thread>

#include "kernels/layout/control_page.h"
#include "tests/contract/contract_backends.h"
#include "tests/contract/gradient_store.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kLayer = 5;
constexpr double kBound = 1e-5;

using AllValues = std::vector<GradientValues>;  // [R]

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class GradientsContractTest : public ContractTest {
 protected:
  GradientsContractTest() : random_(TestSeed()) {}

  void Start(const GroupInput& input, const WeightsShape& shape, int threads = 1) {
    StartOn(backends(), input, shape, threads);
  }
  void StartOn(const RankBackends& on, const GroupInput& input, const WeightsShape& shape,
               int threads) {
    geometry_ = input.geometry;
    RankGroupOptions options;
    options.geometry = geometry_;
    options.hidden = shape.hidden;
    options.own_mappings = GetParam().own_mappings && geometry_.ranks <= kMostOwnMappings;
    options.threads = threads;
    group_ = std::make_unique<RankGroup>(on, options);
    store_ = std::make_unique<GradientStore>(on, geometry_, shape, options.own_mappings);
    made_ = group_->Dispatch(NamedInputs(input, shape.hidden, 1), Copy::kInPlace);
    for (const DispatchResult& result : made_) ASSERT_TRUE(result.status.ok()) << result.status;
  }
  // Four ranks whose routes all go to the experts of the first two, so that the others help.
  void StartSkewed(int threads = 1, const WeightsShape& shape = {24, 40}) {
    GroupInput input = Skewed(2);
    Start(input, shape, threads);
  }
  GroupInput Skewed(int32_t slots) {
    const Geometry geometry = {
        .ranks = 4, .experts = 8, .tokens = 12, .topk = 3, .slots = slots, .token_padding = 4};
    GroupInput input = PlainGroup(random_, geometry);
    for (int32_t& expert : input.topk_experts) expert /= 2;
    return input;
  }

  int32_t ExpertInSlot(int32_t rank, int32_t slot) const {
    return made_[0].tensors.experts_to_copy[rank * geometry_.slots + slot];
  }
  bool IsUsed(int32_t rank, int32_t slot) const { return ExpertInSlot(rank, slot) >= 0; }
  AllValues RandomValues();
  void Write(const AllValues& values) {
    for (int32_t rank = 0; rank < geometry_.ranks; ++rank) store_->Write(rank, values[rank]);
  }
  AllValues Read() const {
    AllValues values;
    for (int32_t rank = 0; rank < geometry_.ranks; ++rank) values.push_back(store_->Read(rank));
    return values;
  }
  std::vector<absl::Status> Reduce() {
    const Sequence sequence = group_->NextSequence();
    return group_->OnAll([&](int32_t rank) { return ReduceOf(rank, sequence, kLayer); });
  }
  absl::Status ReduceOf(int32_t rank, Sequence sequence, int32_t layer) {
    return group_->path(rank).ReduceGradients(sequence, made_[rank].plan,
                                              store_->GradientsOf(rank, layer));
  }
  void ExpectReduced(const AllValues& before, const AllValues& after);
  void ExpectUnchanged(const AllValues& before) {
    const AllValues after = Read();
    for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
      for (int kind = 0; kind < 3; ++kind) {
        EXPECT_TRUE(SameBits(after[rank].home[kind], before[rank].home[kind])) << rank;
        EXPECT_TRUE(SameBits(after[rank].slots[kind], before[rank].slots[kind])) << rank;
      }
    }
  }
  int UsedSlots() const {
    int used = 0;
    for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
      for (int32_t slot = 0; slot < geometry_.slots; ++slot) used += IsUsed(rank, slot) ? 1 : 0;
    }
    return used;
  }
  void ArriveAtEntryFor(int32_t rank, Sequence sequence, const WeightsShape& shape);
  bool IsAtExit(int32_t rank, Sequence sequence);

  std::mt19937_64 random_;
  Geometry geometry_;
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<GradientStore> store_;
  std::vector<DispatchResult> made_;
};

// Unused slots hold NaNs of a pattern of their own: neither to be read nor to be written.
AllValues GradientsContractTest::RandomValues() {
  std::normal_distribution<float> normal;
  AllValues values(geometry_.ranks);
  const size_t elements = store_->elements();
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    for (int kind = 0; kind < 3; ++kind) {
      std::vector<float>& home = values[rank].home[kind];
      home.resize(geometry_.experts_per_rank() * elements);
      for (float& value : home) value = normal(random_);
      std::vector<float>& slots = values[rank].slots[kind];
      slots.assign(geometry_.slots * elements, std::numeric_limits<float>::quiet_NaN());
      for (size_t i = 0; i < slots.size(); ++i) {
        if (IsUsed(rank, static_cast<int32_t>(i / elements))) slots[i] = normal(random_);
      }
    }
  }
  return values;
}

void GradientsContractTest::ExpectReduced(const AllValues& before, const AllValues& after) {
  const size_t elements = store_->elements();
  const int32_t per_rank = geometry_.experts_per_rank();
  double error = 0;
  double norm = 0;
  for (int32_t expert = 0; expert < geometry_.experts; ++expert) {
    const int32_t home = expert / per_rank;
    for (int kind = 0; kind < 3; ++kind) {
      for (size_t i = 0; i < elements; ++i) {
        const size_t at = (expert % per_rank) * elements + i;
        float in_order = before[home].home[kind][at];
        double exact = in_order;
        for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
          for (int32_t slot = 0; slot < geometry_.slots; ++slot) {
            if (ExpertInSlot(rank, slot) != expert) continue;
            in_order += before[rank].slots[kind][slot * elements + i];
            exact += before[rank].slots[kind][slot * elements + i];
          }
        }
        const float sum = after[home].home[kind][at];
        ASSERT_EQ(sum, in_order) << "expert " << expert << " kind " << kind << " element " << i;
        error += (sum - exact) * (sum - exact);
        norm += exact * exact;
      }
    }
  }
  EXPECT_LE(std::sqrt(error), kBound * std::sqrt(norm));
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    for (int kind = 0; kind < 3; ++kind) {
      std::vector<float> expected = before[rank].slots[kind];
      for (size_t i = 0; i < expected.size(); ++i) {
        if (IsUsed(rank, static_cast<int32_t>(i / elements))) expected[i] = 0;
      }
      EXPECT_TRUE(SameBits(after[rank].slots[kind], expected)) << "slots of rank " << rank;
    }
  }
}

TEST_P(GradientsContractTest, SumsInOrderAndRepeatsItsBits) {
  int used = 0;
  const int groups = std::max(GetParam().random_groups / 10, 1);
  for (int i = 0; i < groups;) {
    // The first of four ranks where there may be as many: few random groups may use no slot at all.
    GroupInput input = i == 0 && GetParam().max_ranks >= 4 ? Skewed(4) : RandomGroup(random_);
    if (input.geometry.ranks > GetParam().max_ranks) continue;
    ++i;
    SCOPED_TRACE(input.Describe());
    if (input.geometry.slots < input.geometry.experts_per_rank()) {
      input.geometry.slots = input.geometry.experts_per_rank();
    }
    std::uniform_int_distribution<int32_t> eighths(1, 4);
    Start(input, {8 * eighths(random_), 8 * eighths(random_)}, 1 + i % 3);
    if (HasFatalFailure()) return;
    used += UsedSlots();
    const AllValues before = RandomValues();
    Write(before);
    ExpectOk(Reduce());
    const AllValues first = Read();
    ExpectReduced(before, first);
    Write(before);
    ExpectOk(Reduce());
    ExpectUnchanged(first);
  }
  EXPECT_TRUE(used > 0 || GetParam().max_ranks < 4);
}

// More than one span of a block and a part of the last.
TEST_P(GradientsContractTest, LargeMatricesAreSummedToTheirEnds) {
  StartSkewed(/*threads=*/3, {136, 328});
  ASSERT_GT(UsedSlots(), 0);
  const AllValues before = RandomValues();
  Write(before);
  ExpectOk(Reduce());
  ExpectReduced(before, Read());
}

// Slots are clear for the next micro-batch, whose gradients go on top of the sums.
TEST_P(GradientsContractTest, QueuedReductionsFollowEachOther) {
  StartOn(queueing_backends(), Skewed(2), {24, 40}, 1);
  ASSERT_GT(UsedSlots(), 0);
  const AllValues before = RandomValues();
  Write(before);
  const Sequence first = group_->NextSequence();
  const Sequence second = group_->NextSequence();
  ExpectOk(group_->OnAll([&](int32_t rank) {
    absl::Status status = ReduceOf(rank, first, kLayer);
    if (status.ok()) status = ReduceOf(rank, second, kLayer + 1);
    return status.ok() ? group_->path(rank).Synchronize() : status;
  }));
  ExpectReduced(before, Read());
}

TEST_P(GradientsContractTest, FewerSlotsThanRemoteExpertsAreRefused) {
  for (int32_t slots : {0, 1}) {
    Start(Skewed(slots), {24, 40});
    const AllValues before = RandomValues();
    Write(before);
    for (const absl::Status& status : Reduce()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(
          std::string(status.message()),
          HasSubstr("B = " + std::to_string(slots) + " slots per rank, expected at least E/R = 2"));
    }
    ExpectUnchanged(before);
  }
}

TEST_P(GradientsContractTest, BadGradientsAreRefused) {
  StartSkewed();
  const AllValues before = RandomValues();
  Write(before);
  const Sequence sequence = group_->NextSequence();
  const auto reduce = [&](const std::function<void(ExpertGradients&)>& spoil) {
    ExpertGradients gradients = store_->GradientsOf(0, kLayer);
    spoil(gradients);
    const absl::Status status = group_->path(0).ReduceGradients(sequence, made_[0].plan, gradients);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_FALSE(group_->path(0).last_error().has_value());
    return std::string(status.message());
  };
  EXPECT_THAT(reduce([](ExpertGradients& g) { g.home_up = nullptr; }), HasSubstr("is null"));
  EXPECT_THAT(reduce([](ExpertGradients& g) { g.slots[2] = nullptr; }),
              HasSubstr("slot gradients of rank 2 are null"));
  EXPECT_THAT(reduce([](ExpertGradients& g) { g.slots.pop_back(); }), HasSubstr("3 slot blocks"));
  EXPECT_THAT(reduce([](ExpertGradients& g) { g.own_slots = nullptr; }), HasSubstr("own slot"));
  EXPECT_THAT(reduce([](ExpertGradients& g) { g.shape.hidden = 32; }),
              HasSubstr("gradients have hidden size 32, the buffer has 24"));
  EXPECT_THAT(reduce([](ExpertGradients& g) { g.shape.intermediate = 12; }),
              HasSubstr("intermediate size 12"));
  ExpectUnchanged(before);
  // The sequence was not used up.
  ExpectOk(group_->OnAll([&](int32_t rank) { return ReduceOf(rank, sequence, kLayer); }));
  ExpectReduced(before, Read());
}

TEST_P(GradientsContractTest, RanksThatDisagreeLeaveTheSumsAlone) {
  StartSkewed();
  const AllValues before = RandomValues();
  Write(before);
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll(
      [&](int32_t rank) { return ReduceOf(rank, sequence, rank == 2 ? kLayer + 1 : kLayer); });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("reduce gradients"), HasSubstr("rank 2 says layer 6, rank 0 says"),
                      Not(HasSubstr("undefined"))));
  }
  ExpectUnchanged(before);
  ExpectOk(Reduce());
  ExpectReduced(before, Read());
}

// What `rank` would have written had it entered: the test speaks for it.
void GradientsContractTest::ArriveAtEntryFor(int32_t rank, Sequence sequence,
                                             const WeightsShape& shape) {
  Statement statement;
  statement.tag = made_[rank].plan->tag();
  statement.tag.sequence = sequence;
  OperationDescriptor& descriptor = statement.descriptor;
  descriptor.operation = static_cast<uint32_t>(Operation::kReduceGradients);
  descriptor.tokens = geometry_.tokens;
  descriptor.hidden = shape.hidden;
  descriptor.topk = geometry_.topk;
  descriptor.experts = geometry_.experts;
  descriptor.slots = geometry_.slots;
  descriptor.token_padding = geometry_.token_padding;
  descriptor.intermediate = shape.intermediate;
  descriptor.dtype = static_cast<uint32_t>(Dtype::kFloat32);
  descriptor.layer = kLayer;
  descriptor.plan_sequence = made_[rank].plan->tag().sequence.value;
  EntryRecord record;
  record.sequence = sequence.value;
  record.statement_hash = HashStatement(statement);
  const uint64_t arrival = BarrierPosition(sequence.value, Phase::kEntry);
  for (int32_t peer = 0; peer < geometry_.ranks; ++peer) {
    auto& words = reinterpret_cast<ControlPage*>(group_->shard(peer))->peers[rank];
    const auto write = [&](void* to, const void* from, size_t bytes) {
      const auto* first = static_cast<const std::byte*>(from);
      EXPECT_TRUE(backend(peer)
                      .CopyIn(static_cast<std::byte*>(to), absl::MakeConstSpan(first, bytes))
                      .ok());
    };
    write(&words.entry[sequence.value & 1], &record, sizeof(record));
    write(&words.arrival, &arrival, sizeof(arrival));
  }
}

bool GradientsContractTest::IsAtExit(int32_t rank, Sequence sequence) {
  uint64_t arrival = 0;
  const auto* words = &reinterpret_cast<const ControlPage*>(group_->shard(3))->peers[rank].arrival;
  EXPECT_TRUE(backend(3)
                  .CopyOut(absl::MakeSpan(reinterpret_cast<std::byte*>(&arrival), sizeof(arrival)),
                           reinterpret_cast<const std::byte*>(words))
                  .ok());
  return arrival >= BarrierPosition(sequence.value, Phase::kExit);
}

TEST_P(GradientsContractTest, AnAbortInTheMiddleMarksTheSums) {
  if (GetParam().is_staged()) GTEST_SKIP() << "ranks share no words by which a test could speak";
  const WeightsShape shape = {24, 40};
  StartSkewed(1, shape);
  const AllValues before = RandomValues();
  Write(before);
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    if (rank != 3) return ReduceOf(rank, sequence, kLayer);
    // Rank 3 enters, and is lost before it has done its part.
    ArriveAtEntryFor(3, sequence, shape);
    for (int32_t peer : {0, 1, 2}) {
      while (!IsAtExit(peer, sequence)) std::this_thread::yield();
    }
    for (int32_t peer : {0, 1, 2}) group_->path(peer).Abort(3, "its process has ended");
    return absl::OkStatus();
  });
  for (int32_t rank : {0, 1, 2}) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kUnavailable) << statuses[rank];
    EXPECT_THAT(std::string(statuses[rank].message()),
                AllOf(HasSubstr("rank 3 is lost"),
                      HasSubstr("; the gradient sums of layer 5 are undefined now")));
    const absl::optional<ErrorRecord> record = group_->path(rank).last_error();
    ASSERT_TRUE(record.has_value());
    EXPECT_EQ(record->phase, static_cast<uint32_t>(Phase::kExit));
    EXPECT_EQ(record->operation, static_cast<uint32_t>(Operation::kReduceGradients));
  }
  // Rank 3 may still read them.
  const AllValues after = Read();
  for (int32_t rank = 0; rank < geometry_.ranks; ++rank) {
    for (int kind = 0; kind < 3; ++kind) {
      EXPECT_TRUE(SameBits(after[rank].slots[kind], before[rank].slots[kind]))
          << "slots of rank " << rank << " were cleared";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GradientsContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
