#include "kernels/host/source_rows.h"

#include <random>

#include "gtest/gtest.h"
#include "kernels/plan/destination.h"
#include "kernels/plan/plan.h"

namespace perigee {
namespace {

constexpr Geometry kGeometry = {
    .ranks = 3, .experts = 6, .tokens = 9, .topk = 3, .slots = 1, .token_padding = 4};

// Rank 1 of a group whose ranks have published their destinations.
class SourceRowsTest : public ::testing::Test {
 protected:
  SourceRowsTest() {
    const uint64_t seed = std::random_device()();
    RecordProperty("seed", std::to_string(seed));
    std::mt19937_64 random(seed);
    std::vector<int32_t> routes;
    for (int i = 0; i < kGeometry.ranks * kGeometry.routes(); ++i) {
      routes.push_back(std::uniform_int_distribution<int>(-1, kGeometry.experts - 1)(random));
    }
    plan_ = *PlanGroup(kGeometry, routes, {});
    rank_.geometry = kGeometry;
    rank_.hidden = 8;
    rank_.rank = RankId(1);
    rank_.layout = ShardLayout::Create(kGeometry, rank_.hidden);
    for (int32_t rank = 0; rank < kGeometry.ranks; ++rank) {
      const auto dst = plan_.dst_of(RankId(rank));
      published_.emplace_back(dst.begin(), dst.end());
    }
    for (auto& dst : published_) rank_.sources.push_back({nullptr, nullptr, dst.data()});
  }

  absl::StatusOr<SourceRows> Read() const {
    return ReadSourceRows(rank_, {plan_.placement, published_[1]});
  }
  // The first destination of rank 2 that is on rank 1.
  int32_t& OfRank2() {
    for (int32_t& dst : published_[2]) {
      if (!IsMasked(dst) && RankOf(DecodeRow(dst), rank_.logical_rows()) == 1) return dst;
    }
    ADD_FAILURE() << "no such route";
    return published_[2][0];
  }
  void ExpectDamaged() {
    const absl::Status status = Read().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_NE(status.message().find("source shard is damaged"), std::string::npos) << status;
  }

  GroupPlan plan_;
  std::vector<std::vector<int32_t>> published_;
  HostRank rank_;
};

TEST_F(SourceRowsTest, OriginsAreDestinationsTheOtherWayRound) {
  const absl::StatusOr<SourceRows> rows = Read();
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(DuplicatesOf(*rows), plan_.duplicates[1]);
  int32_t with_origin = 0;
  for (int32_t row = 0; row < rank_.logical_rows(); ++row) {
    const int32_t origin = rows->origins[row];
    if (IsMasked(origin)) continue;
    ++with_origin;
    const int32_t from = DecodeRow(origin) / kGeometry.routes();
    const int32_t dst = published_[from][DecodeRow(origin) % kGeometry.routes()];
    EXPECT_EQ(DecodeRow(dst), rank_.logical_rows() + row);
    EXPECT_EQ(IsPrimary(dst), IsPrimary(origin));
  }
  EXPECT_EQ(with_origin, plan_.placement.load[1]);
}

TEST_F(SourceRowsTest, ARouteThatIsMissingIsDamage) {
  OfRank2() = kMaskedRoute;
  ExpectDamaged();
}

TEST_F(SourceRowsTest, ARowPastTheLastGroupIsDamage) {
  OfRank2() = 2 * rank_.logical_rows() - 1;
  ExpectDamaged();
}

TEST_F(SourceRowsTest, ARowOfTwoRoutesIsDamage) {
  for (const int32_t dst : published_[0]) {
    if (IsMasked(dst) || RankOf(DecodeRow(dst), rank_.logical_rows()) != 1) continue;
    OfRank2() = DecodeRow(dst);
    return ExpectDamaged();
  }
  FAIL() << "no such route";
}

TEST_F(SourceRowsTest, ADuplicateWithNoPrimaryIsDamage) {
  int32_t& dst = OfRank2();  // the first of its token here
  dst = EncodeDuplicate(dst);
  ExpectDamaged();
}

TEST_F(SourceRowsTest, ARowOfPaddingIsDamage) {
  const auto padding = plan_.placement.zero_fill_of(RankId(1));
  for (size_t group = 0; group < padding.size() / 2; ++group) {
    if (padding[2 * group + 1] == 0) continue;
    OfRank2() = rank_.logical_rows() + padding[2 * group];
    return ExpectDamaged();
  }
  // Every group is full: nothing to try.
}

}  // namespace
}  // namespace perigee
