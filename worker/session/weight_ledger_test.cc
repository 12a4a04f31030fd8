#include "worker/session/weight_ledger.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

v1::WeightTarget Target(int32_t layer, uint64_t version, v1::WeightTarget::Kind kind) {
  v1::WeightTarget target;
  target.set_layer(layer);
  target.set_version(version);
  target.set_kind(kind);
  return target;
}

class WeightLedgerTest : public ::testing::Test {
 protected:
  bool Load(int32_t layer, uint64_t version, v1::WeightTarget::Kind kind) {
    EXPECT_TRUE(ledger_.Begin(Target(layer, version, kind)).ok());
    return ledger_.Finish(Target(layer, version, kind));
  }
  bool LoadAll(int32_t layer, uint64_t version) {
    Load(layer, version, v1::WeightTarget::UP);
    Load(layer, version, v1::WeightTarget::GATE);
    return Load(layer, version, v1::WeightTarget::DOWN);
  }
  WeightLedger ledger_{2};
};

TEST_F(WeightLedgerTest, HoldsAVersionWhenAllThreeAreComplete) {
  EXPECT_FALSE(Load(0, 5, v1::WeightTarget::GATE));
  EXPECT_FALSE(Load(0, 5, v1::WeightTarget::DOWN));
  EXPECT_FALSE(Load(1, 5, v1::WeightTarget::UP));
  EXPECT_EQ(ledger_.version(0), 0u);
  EXPECT_TRUE(Load(0, 5, v1::WeightTarget::UP));
  EXPECT_EQ(ledger_.version(0), 5u);
  EXPECT_EQ(ledger_.version(1), 0u);
}

TEST_F(WeightLedgerTest, HoldsNothingFromTheFirstByteOfAnother) {
  ASSERT_TRUE(LoadAll(0, 5));
  ASSERT_TRUE(ledger_.Begin(Target(0, 6, v1::WeightTarget::UP)).ok());
  EXPECT_EQ(ledger_.version(0), 0u);
  EXPECT_FALSE(ledger_.Finish(Target(0, 6, v1::WeightTarget::UP)));
  EXPECT_FALSE(Load(0, 6, v1::WeightTarget::GATE));
  EXPECT_TRUE(Load(0, 6, v1::WeightTarget::DOWN));
}

TEST_F(WeightLedgerTest, AnAbandonedMatrixMustComeAgain) {
  ASSERT_TRUE(LoadAll(0, 5));
  ASSERT_TRUE(ledger_.Begin(Target(0, 5, v1::WeightTarget::UP)).ok());
  ledger_.Abandon(Target(0, 5, v1::WeightTarget::UP));
  EXPECT_EQ(ledger_.version(0), 0u);
  EXPECT_FALSE(Load(0, 5, v1::WeightTarget::DOWN));
  EXPECT_TRUE(Load(0, 5, v1::WeightTarget::UP));
}

TEST_F(WeightLedgerTest, OneMatrixOfTheHeldVersionMayComeAgainAlone) {
  ASSERT_TRUE(LoadAll(0, 5));
  ASSERT_TRUE(ledger_.Begin(Target(0, 5, v1::WeightTarget::GATE)).ok());
  EXPECT_EQ(ledger_.version(0), 0u);
  EXPECT_TRUE(ledger_.Finish(Target(0, 5, v1::WeightTarget::GATE)));
  EXPECT_EQ(ledger_.version(0), 5u);
}

// Matrices of two versions never make one: what came of the unfinished version does not count.
TEST_F(WeightLedgerTest, AnotherVersionTakesThePlaceOfAnUnfinishedOne) {
  Load(0, 5, v1::WeightTarget::GATE);
  Load(0, 5, v1::WeightTarget::UP);
  ASSERT_TRUE(ledger_.Begin(Target(0, 5, v1::WeightTarget::DOWN)).ok());
  ledger_.Abandon(Target(0, 5, v1::WeightTarget::DOWN));
  EXPECT_FALSE(Load(0, 4, v1::WeightTarget::DOWN));
  EXPECT_FALSE(Load(0, 4, v1::WeightTarget::GATE));
  EXPECT_EQ(ledger_.version(0), 0u);
  EXPECT_TRUE(Load(0, 4, v1::WeightTarget::UP));
  EXPECT_EQ(ledger_.version(0), 4u);
  // Back at version 5, nothing is left of its first two matrices either.
  EXPECT_FALSE(Load(0, 5, v1::WeightTarget::DOWN));
}

TEST_F(WeightLedgerTest, ARefusedLoadChangesNothing) {
  ASSERT_TRUE(LoadAll(0, 5));
  EXPECT_FALSE(ledger_.Begin(Target(0, 0, v1::WeightTarget::UP)).ok());
  EXPECT_EQ(ledger_.version(0), 5u);
  ASSERT_TRUE(ledger_.Begin(Target(0, 6, v1::WeightTarget::UP)).ok());
  EXPECT_FALSE(ledger_.Begin(Target(0, 7, v1::WeightTarget::GATE)).ok());
  EXPECT_FALSE(Load(0, 6, v1::WeightTarget::GATE));
  EXPECT_FALSE(Load(0, 6, v1::WeightTarget::DOWN));
  EXPECT_TRUE(ledger_.Finish(Target(0, 6, v1::WeightTarget::UP)));
}

TEST_F(WeightLedgerTest, ParallelLoadsOfOneMatrixOrOfTwoVersionsAreRefused) {
  ASSERT_TRUE(ledger_.Begin(Target(0, 5, v1::WeightTarget::UP)).ok());
  EXPECT_EQ(ledger_.Begin(Target(0, 5, v1::WeightTarget::UP)).code(), absl::StatusCode::kAborted);
  const absl::Status status = ledger_.Begin(Target(0, 6, v1::WeightTarget::DOWN));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Message(status), HasSubstr("version 5"));
  EXPECT_TRUE(ledger_.Begin(Target(0, 5, v1::WeightTarget::DOWN)).ok());
  EXPECT_TRUE(ledger_.Begin(Target(1, 6, v1::WeightTarget::UP)).ok());
}

TEST_F(WeightLedgerTest, BadTargetsAreRefused) {
  for (const v1::WeightTarget& target :
       {Target(-1, 1, v1::WeightTarget::UP), Target(2, 1, v1::WeightTarget::UP),
        Target(0, 0, v1::WeightTarget::UP), Target(0, 1, v1::WeightTarget::KIND_UNSPECIFIED),
        Target(0, 1, static_cast<v1::WeightTarget::Kind>(9))}) {
    EXPECT_EQ(ledger_.Begin(target).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_THAT(Message(CheckWeightTarget(Target(2, 1, v1::WeightTarget::UP), 2)),
              HasSubstr("layer is 2, the buffer has 2 layers"));
}

TEST(WeightLedgerScalesTest, ASetIsCompleteOrNamedWhatItLacks) {
  WeightLedger ledger(2, kWeightParts);
  EXPECT_TRUE(ledger.CheckComplete(0).ok()) << "nothing is there";
  for (int kind = v1::WeightTarget::GATE; kind <= v1::WeightTarget::GATE_SCALES; ++kind) {
    const v1::WeightTarget target = Target(0, 5, static_cast<v1::WeightTarget::Kind>(kind));
    ASSERT_TRUE(ledger.Begin(target).ok());
    EXPECT_FALSE(ledger.Finish(target));
  }
  EXPECT_EQ(ledger.version(0), 0u);
  const absl::Status status = ledger.CheckComplete(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(status), "version 5 of layer 0 is incomplete: UP_SCALES, DOWN_SCALES missing");
  EXPECT_TRUE(ledger.CheckComplete(1).ok()) << "of another layer";
  ASSERT_TRUE(ledger.Begin(Target(0, 5, v1::WeightTarget::UP_SCALES)).ok());
  EXPECT_FALSE(ledger.Finish(Target(0, 5, v1::WeightTarget::UP_SCALES)));
  ASSERT_TRUE(ledger.Begin(Target(0, 5, v1::WeightTarget::DOWN_SCALES)).ok());
  EXPECT_TRUE(ledger.Finish(Target(0, 5, v1::WeightTarget::DOWN_SCALES)));
  EXPECT_TRUE(ledger.CheckComplete(0).ok());
}

TEST(WeightLedgerScalesTest, WithoutScalesTheirKindsAreUnknown) {
  WeightLedger ledger(1);
  EXPECT_THAT(Message(ledger.Begin(Target(0, 5, v1::WeightTarget::GATE_SCALES))),
              HasSubstr("weights kind 4 is not of this buffer, expected gate, up or down"));
}

}  // namespace
}  // namespace perigee
