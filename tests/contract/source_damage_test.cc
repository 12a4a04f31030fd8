// A rank that finds other destinations in a peer's source shard than can be, on every backend: it
// says so, names who wrote them where that is known, and uses none of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/layout/source_layout.h"
#include "kernels/owner_source.h"
#include "kernels/plan/destination.h"
#include "tests/contract/contract_backends.h"
#include "tests/contract/device_array.h"
#include "tests/contract/forwarding_backend.h"
#include "tests/contract/kept_arrays.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr Geometry kGeometry = {
    .ranks = 2, .experts = 4, .tokens = 12, .topk = 2, .slots = 2, .token_padding = 4};

// Rank 0 sees other memory in place of rank 1's source shard.
class DecoyBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  absl::StatusOr<std::unique_ptr<DataPath>> CreateDataPath(
      const DataPathOptions& options) override {
    DataPathOptions changed = options;
    if (decoy != nullptr && options.rank == RankId(0)) changed.sources[1] = decoy;
    return ForwardingBackend::CreateDataPath(changed);
  }
  std::byte* decoy = nullptr;
};

class SourceDamageTest : public ContractTest {
 protected:
  SourceDamageTest() : random_(TestSeed()) {
    options_.geometry = kGeometry;
    options_.own_mappings = GetParam().own_mappings;
    options_.sources = true;
    layout_ = SourceLayout::Create(kGeometry, options_.hidden);
    decoy_ = *backend(0).AllocateShared(layout_.size_bytes, PeerAccess::kReadWrite);
    do Learn();
    while (!HasAllCases());
  }

  // What each rank is told; fills in the plans that were made.
  std::vector<absl::Status> Prepare(RankGroup& group, std::vector<PlanTensors>* plans = nullptr) {
    const Sequence sequence = group.NextSequence();
    if (plans != nullptr) plans->resize(kGeometry.ranks);
    return group.OnAll([&](int32_t rank) -> absl::Status {
      const RankInput& input = inputs_[rank];
      auto source = group.path(rank).source()->PrepareSource(
          sequence, {kept_.Add(backend(rank), input.topk_experts), input.token_count});
      if (!source.ok() || plans == nullptr) return source.status();
      auto tensors = group.path(rank).ReadPlan((*source)->plan());
      if (tensors.ok()) (*plans)[rank] = *std::move(tensors);
      return tensors.status();
    });
  }
  // Of other inputs, what each rank publishes where nothing is damaged.
  void Learn() {
    inputs_ = NamedInputs(PlainGroup(random_, kGeometry), options_.hidden, 1);
    RankGroup group(backends(), options_);
    ExpectOk(Prepare(group, &plans_));
    kept_.Clear();
  }
  static bool IsOnRank0(int32_t dst) {
    return !IsMasked(dst) && DecodeRow(dst) < kGeometry.logical_rows();
  }
  // A place in rank 1's destinations of a row that travels to rank 0; their number: there is none.
  size_t TravellingRoute() const {
    const std::vector<int32_t>& dst = plans_[1].dst;
    return std::find_if(dst.begin(), dst.end(),
                        [](int32_t to) { return IsPrimary(to) && IsOnRank0(to); }) -
           dst.begin();
  }
  // On rank 0; -1: there is none.
  int32_t PaddingRow() const {
    const std::vector<int32_t>& ranges = plans_[0].zero_fill_ranges;
    for (size_t group = 0; group < ranges.size() / 2; ++group) {
      if (ranges[2 * group + 1] > 0) return ranges[2 * group];
    }
    return -1;
  }
  // Of one of rank 0's own routes that stays there; -1: there is none.
  int32_t TakenRow() const {
    const std::vector<int32_t>& dst = plans_[0].dst;
    const auto found = std::find_if(dst.begin(), dst.end(), IsOnRank0);
    return found == dst.end() ? -1 : DecodeRow(*found);
  }
  // Nearly always.
  bool HasAllCases() const {
    return TravellingRoute() < plans_[1].dst.size() && PaddingRow() >= 0 && TakenRow() >= 0 &&
           plans_[0].cu_seqlens.back() < kGeometry.logical_rows();
  }
  absl::Status PrepareWith(const std::vector<int32_t>& dst) {
    const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(dst.data()),
                                           dst.size() * sizeof(int32_t));
    EXPECT_TRUE(backend(0).CopyIn(decoy_->data() + layout_.dst, bytes).ok());
    DecoyBackend decoys(backend(0));
    decoys.decoy = decoy_->data();
    RankGroup group(decoys, options_);
    const absl::Status status = Prepare(group)[0];
    kept_.Clear();
    if (status.ok()) return status;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(group.path(0).last_error().has_value());
    return status;
  }

  std::mt19937_64 random_;
  RankGroupOptions options_;
  std::vector<RankInput> inputs_;
  SourceLayout layout_;
  std::unique_ptr<Memory> decoy_;
  std::vector<PlanTensors> plans_;
  KeptArrays kept_;
};

TEST_P(SourceDamageTest, WhatIsUndamagedIsTaken) {
  const absl::Status status = PrepareWith(plans_[1].dst);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(SourceDamageTest, WhoPublishedWhatCannotBeIsNamed) {
  const size_t route = TravellingRoute();
  const struct {
    const char* name;
    int32_t dst;
  } cases[] = {{"past the last group", plans_[0].cu_seqlens.back()},
               {"padding", PaddingRow()},
               {"another route's", TakenRow()},
               {"no row that travels", EncodeDuplicate(plans_[1].dst[route])}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    std::vector<int32_t> dst = plans_[1].dst;
    dst[route] = one.dst;
    EXPECT_THAT(
        std::string(PrepareWith(dst).message()),
        AllOf(HasSubstr("rank 1 published destination"), HasSubstr("source shard is damaged")));
  }
}

TEST_P(SourceDamageTest, WhatIsMissingIsCounted) {
  std::vector<int32_t> dst = plans_[1].dst;
  const size_t token = TravellingRoute() / kGeometry.topk * kGeometry.topk;
  int32_t missing = 0;
  for (size_t route = token; route < token + kGeometry.topk; ++route) {
    if (!IsOnRank0(dst[route])) continue;
    dst[route] = kMaskedRoute;
    ++missing;
  }
  const int32_t load = plans_[0].load[0];
  EXPECT_THAT(
      std::string(PrepareWith(dst).message()),
      HasSubstr(absl::StrCat("give rank 0 ", load - missing, " rows, its plan has ", load)));
}

INSTANTIATE_TEST_SUITE_P(Backends, SourceDamageTest, testing::ValuesIn(PublishingCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
