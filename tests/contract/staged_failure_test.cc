// A staged data path whose own memory fails, at every place where it can: what fails before other
// ranks can wait for this one is a refusal, and the operation can be declined; what fails behind
// that has a record, so that the generation ends instead of their deadline.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "tests/contract/failing_backend.h"
#include "tests/contract/rank_group.h"
#include "tests/contract/staged_host_backend.h"
#include "tests/contract/test_data.h"

namespace perigee {
namespace {

// One rank alone: what it does for others it does all the same.
class StagedFailureTest : public ::testing::Test {
 protected:
  static constexpr Geometry kGeometry{
      .ranks = 1, .experts = 4, .tokens = 5, .topk = 2, .slots = 4, .token_padding = 2};
  static constexpr int64_t kNever = -1;

  // How often the operation failed, once at each of its copies.
  template <typename Operation>
  void FailAtEveryCopy(const Operation& operation, int64_t* refused, int64_t* recorded) {
    for (int64_t at = 0;; ++at) {
      SCOPED_TRACE(at);
      ASSERT_LT(at, 1000) << "it never ends well";
      CopiesLeft copies_left = kNever;
      const auto backend = MakeStagedHostBackend(std::make_unique<FailingBackend>(&copies_left));
      RankGroup group(RankBackends({backend.get()}, Transport::kNccl), {.geometry = kGeometry});
      const absl::StatusOr<PlanPtr> plan = Dispatch(group, group.NextSequence());
      ASSERT_TRUE(plan.ok()) << plan.status();
      copies_left = at;
      const Sequence sequence = group.NextSequence();
      const absl::Status status = operation(group, sequence, *plan);
      const bool failed = copies_left < 0;
      copies_left = kNever;
      ASSERT_EQ(status.ok(), !failed) << status;
      if (!failed) return;
      const absl::optional<ErrorRecord> record = group.path(0).last_error();
      if (!record) {
        ++*refused;
        EXPECT_TRUE(group.path(0).Decline(sequence).ok()) << "the others are told";
        EXPECT_TRUE(group.path(0).Barrier(group.NextSequence()).ok());
      } else {
        ++*recorded;
        EXPECT_EQ(record->reason, static_cast<uint32_t>(AbortReason::kAborted));
        EXPECT_EQ(record->sequence, sequence.value);
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
        EXPECT_FALSE(group.path(0).Barrier(group.NextSequence()).ok()) << "nothing can follow";
      }
    }
  }
  absl::StatusOr<PlanPtr> Dispatch(RankGroup& group, Sequence sequence) {
    const RankInput& input = inputs_[0];
    return group.path(0).Dispatch(sequence,
                                  {input.hidden.data(), input.topk_experts.data(),
                                   input.route_weights.data(), input.token_count},
                                  {});
  }

  std::mt19937_64 random_{std::random_device()()};
  const std::vector<RankInput> inputs_ =
      NamedInputs(PlainGroup(random_, kGeometry), RankGroupOptions().hidden, 3);
};

TEST_F(StagedFailureTest, ADispatchIsRefusedOrRecordsItsFailure) {
  int64_t refused = 0, recorded = 0;
  FailAtEveryCopy([&](RankGroup& group, Sequence sequence,
                      const PlanPtr&) { return Dispatch(group, sequence).status(); },
                  &refused, &recorded);
  EXPECT_GT(refused, 0) << "its routes cannot be read";
  EXPECT_GT(recorded, 3);
}

TEST_F(StagedFailureTest, ACombineRecordsItsFailure) {
  std::vector<BFloat16> output(static_cast<size_t>(kGeometry.tokens) * RankGroupOptions().hidden);
  int64_t refused = 0, recorded = 0;
  FailAtEveryCopy(
      [&](RankGroup& group, Sequence sequence, const PlanPtr& plan) {
        return group.path(0).Combine(sequence, plan, {.rows = group.path(0).rows()},
                                     {.hidden = output.data()});
      },
      &refused, &recorded);
  EXPECT_GT(recorded, 0);
}

TEST_F(StagedFailureTest, ABarrierRecordsItsFailure) {
  int64_t refused = 0, recorded = 0;
  FailAtEveryCopy([&](RankGroup& group, Sequence sequence,
                      const PlanPtr&) { return group.path(0).Barrier(sequence); },
                  &refused, &recorded);
  EXPECT_EQ(refused, 0) << "it is inside from its first copy on";
  EXPECT_GT(recorded, 0);
}

}  // namespace
}  // namespace perigee
