#include "client/cli/cluster/supervisor_event.h"

#include "gtest/gtest.h"

namespace perigee {
namespace {

using Kind = SupervisorEvent::Kind;

TEST(SupervisorEventTest, ComesBackFromItsLine) {
  const SupervisorEvent sent{.kind = Kind::kLost,
                             .name = "w5",
                             .address = "127.0.0.1:4000",
                             .pid = 1234,
                             .exit_status = 1,
                             .text = "was killed by signal 9 (Killed)"};
  const auto received = ParseSupervisorEvent(FormatSupervisorEvent(sent));
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->kind, sent.kind);
  EXPECT_EQ(received->name, sent.name);
  EXPECT_EQ(received->address, sent.address);
  EXPECT_EQ(received->pid, sent.pid);
  EXPECT_EQ(received->exit_status, sent.exit_status);
  EXPECT_EQ(received->text, sent.text);
}

TEST(SupervisorEventTest, EmptyFieldsStayEmpty) {
  const auto received = ParseSupervisorEvent(FormatSupervisorEvent({.kind = Kind::kReady}));
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->kind, Kind::kReady);
  EXPECT_EQ(received->name, "");
  EXPECT_EQ(received->text, "");
}

TEST(SupervisorEventTest, IsAlwaysOneLine) {
  const std::string line = FormatSupervisorEvent({.kind = Kind::kFailed, .text = "a\nb"});
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(SupervisorEventTest, OtherLinesAreNone) {
  EXPECT_FALSE(ParseSupervisorEvent("").has_value());
  EXPECT_FALSE(ParseSupervisorEvent("hello - - 0 0 ").has_value());
  EXPECT_FALSE(ParseSupervisorEvent("worker w0 a x 0 ").has_value());
}

}  // namespace
}  // namespace perigee
