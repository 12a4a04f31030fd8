#include "client/lib/c_error.h"

#include <cstring>

#include "client/lib/group_error.h"
#include "gtest/gtest.h"
#include "proto/local/local_command.h"

namespace perigee {
namespace {

// As a caller has it: full of something else.
perigee_error Poisoned() {
  perigee_error error;
  std::memset(&error, 0x5a, sizeof(error));
  error.struct_bytes = sizeof(error);
  return error;
}

TEST(CErrorTest, OkIsToldAsWell) {
  perigee_error error = Poisoned();
  EXPECT_EQ(TellStatus(absl::OkStatus(), &error), PERIGEE_OK);
  EXPECT_EQ(error.code, PERIGEE_OK);
  EXPECT_EQ(error.rank, -1);
  EXPECT_STREQ(error.message, "");
  EXPECT_STREQ(error.reason, "");
  EXPECT_EQ(error.lost_ranks[0] | error.lost_ranks[1], 0u);
  EXPECT_EQ(TellStatus(absl::OkStatus(), nullptr), PERIGEE_OK);
}

TEST(CErrorTest, EveryCodeIsItsOwn) {
  for (int code = 0; code <= PERIGEE_UNAUTHENTICATED; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(TellStatus(status, nullptr), code);
  }
  EXPECT_EQ(PERIGEE_DATA_LOSS, static_cast<int>(absl::StatusCode::kDataLoss));
}

TEST(CErrorTest, WhatIsTooLongIsCut) {
  perigee_error error = Poisoned();
  TellStatus(absl::InternalError(std::string(2000, 'x')), std::string(50, 'R'), &error);
  EXPECT_EQ(std::string(error.message), std::string(PERIGEE_MESSAGE_BYTES - 1, 'x'));
  EXPECT_EQ(std::string(error.reason), std::string(PERIGEE_REASON_BYTES - 1, 'R'));
}

TEST(CErrorTest, ACallerWithFewerFieldsGetsThoseAndNoMore) {
  perigee_error error = Poisoned();
  error.struct_bytes = offsetof(perigee_error, generation);
  TellStatus(absl::InternalError("why"), &error);
  EXPECT_EQ(error.code, PERIGEE_INTERNAL);
  EXPECT_EQ(error.generation, 0x5a5a5a5a5a5a5a5aull);
  EXPECT_EQ(error.message[0], 0x5a);
}

TEST(CErrorTest, AFailureOfRanksNamesThem) {
  v1::GroupError group;
  group.set_generation(7);
  for (const int32_t lost : {5, 65, 127, 128, -1}) group.add_lost_ranks(lost);
  group.add_ranks()->set_rank(0);
  v1::RankStatus* failed = group.add_ranks();
  failed->set_rank(1);
  failed->set_code(14);
  failed->set_reason("GENERATION_ABORTED");
  failed->mutable_operation_error()->set_operation("combine");
  failed->mutable_operation_error()->set_sequence(9);
  failed->mutable_operation_error()->set_awaited_rank(5);
  failed->mutable_operation_error()->set_token(-1);
  failed->mutable_operation_error()->set_k(-1);
  perigee_error error = Poisoned();
  EXPECT_EQ(TellStatus(WithGroupError(absl::UnavailableError("lost"), group), &error),
            PERIGEE_UNAVAILABLE);
  EXPECT_STREQ(error.message, "lost");
  EXPECT_STREQ(error.reason, "GENERATION_ABORTED");
  EXPECT_STREQ(error.operation, "combine");
  EXPECT_EQ(error.generation, 7u);
  EXPECT_EQ(error.sequence, 9u);
  EXPECT_EQ(error.rank, 1);
  EXPECT_EQ(error.awaited_rank, 5);
  EXPECT_EQ(error.lost_ranks[0], uint64_t{1} << 5);
  EXPECT_EQ(error.lost_ranks[1], uint64_t{1} << 1 | uint64_t{1} << 63);
}

TEST(CErrorTest, ACompletionTellsAllThatItKnows) {
  LocalCompletion completion;
  completion.status = absl::InvalidArgumentError("expert 99 of 8");
  completion.reason = "BAD_ROUTE";
  completion.generation = Generation(7);
  completion.sequence = Sequence(9);
  completion.kind = static_cast<uint32_t>(CommandKind::kDispatch);
  completion.rank = 2;
  completion.awaited_rank = 3;
  completion.token = 4;
  completion.k = 1;
  completion.lost = {64};
  perigee_error error = Poisoned();
  EXPECT_EQ(TellCompletion(completion, &error), PERIGEE_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "expert 99 of 8");
  EXPECT_STREQ(error.reason, "BAD_ROUTE");
  EXPECT_STREQ(error.operation, "dispatch");
  EXPECT_EQ(error.generation, 7u);
  EXPECT_EQ(error.sequence, 9u);
  EXPECT_EQ(error.rank, 2);
  EXPECT_EQ(error.awaited_rank, 3);
  EXPECT_EQ(error.token, 4);
  EXPECT_EQ(error.k, 1);
  EXPECT_EQ(error.lost_ranks[1], 1u);
}

}  // namespace
}  // namespace perigee
