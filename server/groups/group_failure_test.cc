#include "server/groups/group_failure.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Generation kGeneration(7);

std::vector<Member> Members(int count) {
  std::vector<Member> members(count);
  for (int rank = 0; rank < count; ++rank) {
    members[rank].info.set_rank(rank);
    members[rank].info.set_worker(absl::StrCat("workers/w", rank));
  }
  return members;
}

v1::RankStatus Status(int rank, absl::StatusCode code, const std::string& reason,
                      const std::string& message) {
  v1::RankStatus status;
  status.set_rank(rank);
  status.set_code(static_cast<int32_t>(code));
  status.set_reason(reason);
  status.set_message(message);
  return status;
}

GroupFailure Describe(const std::vector<Member>& members, const std::string& end_reason,
                      const std::vector<v1::RankStatus>& statuses) {
  return DescribeFailure({"tenants/default/groups/g", kGeneration, members, end_reason}, statuses);
}

TEST(GroupFailure, ALostRankIsNamedEverywhere) {
  std::vector<Member> members = Members(4);
  members[3].lost = true;
  members[3].lost_reason = "its connection broke";
  const std::string loss = DescribeLoss(members, kGeneration);
  EXPECT_EQ(loss, "rank 3 (workers/w3) was lost in generation 7: its connection broke");

  const GroupFailure failure =
      Describe(members, loss,
               {Status(0, absl::StatusCode::kOk, "", ""),
                Status(1, absl::StatusCode::kAborted, "GENERATION_ABORTED", "left the wait")});

  EXPECT_EQ(failure.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(failure.status.message(), loss);
  EXPECT_EQ(failure.error.generation(), 7u);
  EXPECT_THAT(failure.error.lost_ranks(), ElementsAre(3));
  ASSERT_EQ(failure.error.ranks_size(), 4);
  EXPECT_EQ(failure.error.ranks(0).code(), 0);  // it had ended before
  for (int rank = 1; rank < 3; ++rank) {
    EXPECT_EQ(failure.error.ranks(rank).code(), 14) << rank;
    EXPECT_EQ(failure.error.ranks(rank).reason(), "GENERATION_ABORTED");
    EXPECT_THAT(failure.error.ranks(rank).message(), HasSubstr(loss));
    EXPECT_EQ(failure.error.ranks(rank).worker(), absl::StrCat("workers/w", rank));
  }
  EXPECT_THAT(failure.error.ranks(1).message(), HasSubstr("left the wait"));
  EXPECT_EQ(failure.error.ranks(3).reason(), "RANK_LOST");
  EXPECT_EQ(failure.error.ranks(3).message(),
            "workers/w3 was lost in generation 7: its connection broke");
}

// As workers word it: the name of the rank, and again by the data path, which knows no workers.
TEST(GroupFailure, ARankIsNamedOnce) {
  const v1::RankStatus late =
      Status(1, absl::StatusCode::kDeadlineExceeded, "DEADLINE",
             "rank 1 (workers/w1): rank 1, combine, sequence 4: rank 0 did not arrive within 10s");
  const GroupFailure failure = Describe(Members(2), "", {late});
  EXPECT_EQ(failure.error.ranks(1).message(),
            "combine, sequence 4: rank 0 did not arrive within 10s");
  EXPECT_EQ(failure.status.message(),
            "rank 1 (workers/w1): combine, sequence 4: rank 0 did not arrive within 10s");
}

TEST(GroupFailure, AnAbortedRankSaysOnceWhyAndWhereItWas) {
  std::vector<Member> members = Members(4);
  members[3].lost = true;
  members[3].lost_reason = "it left";
  const std::string loss = DescribeLoss(members, kGeneration);
  v1::RankStatus aborted = Status(
      0, absl::StatusCode::kUnavailable, "GENERATION_ABORTED",
      absl::StrCat("rank 0 (workers/w0): rank 0, combine, sequence 4: rank 3 is lost: generation 7 "
                   "of tenants/default/groups/g was aborted: ",
                   loss));
  aborted.mutable_operation_error()->set_operation("combine");
  aborted.mutable_operation_error()->set_sequence(4);
  EXPECT_EQ(Describe(members, loss, {aborted}).error.ranks(0).message(),
            loss + " (this rank was in combine, sequence 4)");
  aborted.mutable_operation_error()->set_sequence(0);
  EXPECT_EQ(Describe(members, loss, {aborted}).error.ranks(0).message(),
            loss + " (this rank was in combine)");
  aborted.clear_operation_error();
  EXPECT_EQ(Describe(members, loss, {aborted}).error.ranks(0).message(), loss);
}

TEST(GroupFailure, TheRankThatExplainsTheOthersSpeaks) {
  const GroupFailure failure =
      Describe(Members(4), "",
               {Status(0, absl::StatusCode::kAborted, "DECLINED", "rank 2 declined"),
                Status(1, absl::StatusCode::kDeadlineExceeded, "DEADLINE", "waited"),
                Status(2, absl::StatusCode::kInvalidArgument, "INVALID_PROGRAM", "no tensor 'x'"),
                Status(3, absl::StatusCode::kNotFound, "INVALID_PROGRAM", "no tensor 'y'")});
  EXPECT_EQ(failure.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(failure.status.message(), "rank 2 (workers/w2): no tensor 'x'");
  EXPECT_EQ(failure.error.ranks(0).reason(), "DECLINED");
}

TEST(GroupFailure, ADeadlineExplainsTheAbortThatFollowedIt) {
  const GroupFailure failure =
      Describe(Members(2), "generation 7 was fenced: rank 1 was late",
               {Status(0, absl::StatusCode::kUnavailable, "GENERATION_ABORTED", ""),
                Status(1, absl::StatusCode::kDeadlineExceeded, "DEADLINE", "waited for rank 0")});
  EXPECT_EQ(failure.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(failure.status.message()), HasSubstr("rank 1 (workers/w1)"));
  EXPECT_EQ(failure.error.ranks(0).message(), "generation 7 was fenced: rank 1 was late");
}

TEST(GroupFailure, AnAbortWithoutALossIsUnavailableWithItsReason) {
  const GroupFailure failure = Describe(Members(2), "aborted by request: maintenance", {});
  EXPECT_EQ(failure.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(failure.status.message(), "aborted by request: maintenance");
  for (const auto& rank : failure.error.ranks()) EXPECT_EQ(rank.reason(), "GENERATION_ABORTED");
}

TEST(GroupFailure, ACodeOutsideTheKnownOnesIsUnknown) {
  v1::RankStatus odd = Status(0, absl::StatusCode::kOk, "INTERNAL", "odd");
  odd.set_code(99);
  EXPECT_EQ(Describe(Members(1), "", {odd}).status.code(), absl::StatusCode::kUnknown);
}

TEST(GroupFailure, SeveralLostRanksAreAllNamed) {
  std::vector<Member> members = Members(3);
  members[0].lost = members[2].lost = true;
  members[0].lost_reason = members[2].lost_reason = "it left";
  EXPECT_EQ(DescribeLoss(members, kGeneration),
            "rank 0 (workers/w0) was lost in generation 7: it left; rank 2 (workers/w2) was lost "
            "in generation 7: it left");
}

}  // namespace
}  // namespace perigee
