// Ends that leave ranks at different places: one is missing, is lost, or is at another sequence. No
// operation can follow in that generation.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/contract/device_array.h"
#include "tests/contract/early_end_fixture.h"

namespace perigee {
namespace {

class LostRankContractTest : public EarlyEndTest {};

TEST_P(LostRankContractTest, AMissingRankIsNamedAtTheDeadline) {
  Start(absl::Milliseconds(50));
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    return rank == 2 ? absl::OkStatus() : group_->path(rank).Barrier(sequence);
  });
  for (int32_t rank : {0, 1, 3}) {
    ExpectOne(rank, statuses[rank], absl::StatusCode::kDeadlineExceeded, AbortReason::kDeadline,
              "rank 2 did not arrive within 50ms; it is before its first operation");
    EXPECT_EQ(group_->path(rank).last_error()->awaited_rank, 2);
    EXPECT_EQ(group_->path(rank).last_error()->phase, static_cast<uint32_t>(Phase::kEntry));
    EXPECT_EQ(group_->path(rank).last_error()->expected, 5);
    EXPECT_EQ(group_->path(rank).last_error()->seen, 0);
  }
  // The ranks are no more at one place: nothing can follow.
  const absl::Status next = group_->path(0).Barrier(sequence.Next());
  ExpectOne(0, next, absl::StatusCode::kUnavailable, AbortReason::kAborted,
            "no operation can follow in this generation after: rank 0, barrier, sequence 1: "
            "rank 2 did not arrive");
}

TEST_P(LostRankContractTest, AnAbortEndsTheWaitOfEveryRank) {
  const std::vector<DispatchResult> made = Dispatch();
  const Sequence sequence = group_->NextSequence();
  // Rank 2 is gone; its abort comes in its place, while the others wait or before they do.
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    if (rank != 2) return Combine(rank, sequence, made[rank].plan);
    for (int32_t survivor : {0, 1, 3}) {
      group_->path(survivor).Abort(2, "its process has ended");
      group_->path(survivor).Abort(-1, "a later reason");
    }
    return absl::OkStatus();
  });
  for (int32_t rank : {0, 1, 3}) {
    ExpectOne(rank, statuses[rank], absl::StatusCode::kUnavailable, AbortReason::kAborted,
              "rank 2 is lost: its process has ended");
    EXPECT_EQ(group_->path(rank).last_error()->awaited_rank, 2);
    ExpectOne(rank, group_->path(rank).Barrier(sequence.Next()), absl::StatusCode::kUnavailable,
              AbortReason::kAborted, "rank 2 is lost: its process has ended");
    const DeviceArray<BFloat16> output(backend(rank), made[rank].rows.size());
    ExpectOne(rank,
              group_->path(rank).RunExperts(made[rank].plan, store_->WeightsOf(rank, 0, 1),
                                            {group_->path(rank).rows(), nullptr, output.data()}),
              absl::StatusCode::kUnavailable, AbortReason::kAborted,
              "rank 2 is lost: its process has ended");
  }
}

TEST_P(LostRankContractTest, ASkippedSequenceIsOutOfStepForAll) {
  const Sequence sequence = group_->NextSequence();
  const std::vector<absl::Status> statuses = group_->OnAll([&](int32_t rank) {
    return group_->path(rank).Barrier(rank == 1 ? Sequence(sequence.value + 1) : sequence);
  });
  ExpectOne(1, statuses[1], absl::StatusCode::kFailedPrecondition, AbortReason::kOutOfStep,
            "rank 1 was called with sequence 2, expected 1");
  for (int32_t rank : {0, 2, 3}) {
    ExpectOne(rank, statuses[rank], absl::StatusCode::kFailedPrecondition, AbortReason::kOutOfStep,
              "rank 1");
    EXPECT_EQ(group_->path(rank).last_error()->awaited_rank, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, LostRankContractTest, testing::ValuesIn(ContractCases()),
                         ContractCaseName);

}  // namespace
}  // namespace perigee
