#include "server/groups/lost_command.h"

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(LostCommand, ACommandIsNamedAsInItsMessage) {
  v1::WorkerCommand command;
  EXPECT_EQ(CommandName(command), "nothing");
  command.mutable_abort_generation();
  EXPECT_EQ(CommandName(command), "abort_generation");
}

TEST(LostCommand, TheResultSaysThatNobodyKnows) {
  const v1::CommandResult result = LostCommandResult("open_session");
  EXPECT_EQ(result.status().code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(result.status().reason(), kReasonCommandLost);
  EXPECT_EQ(result.status().message(), "its command stream broke before it answered open_session");
}

}  // namespace
}  // namespace perigee
