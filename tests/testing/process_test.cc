#include "tests/testing/process.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

TEST(ProcessTest, GivesLinesAndStatus) {
  Process process({"/bin/sh", "-c", "echo one; echo $WORD >&2; read nothing; exit 3"},
                  {"WORD=two"});
  EXPECT_EQ(process.AwaitOut("on", kPatience), "one");
  EXPECT_EQ(process.AwaitErr("two", kPatience), "two");
  EXPECT_EQ(process.AwaitExit(kPatience), 3);
  EXPECT_EQ(process.out(), "one\n");
}

TEST(ProcessTest, EveryWaitEnds) {
  Process process({"/bin/sh", "-c", "printf half; exec sleep 60"}, {});
  EXPECT_FALSE(process.AwaitOut("half", absl::Milliseconds(50)).has_value()) << "no whole line";
  EXPECT_FALSE(process.AwaitExit(absl::Milliseconds(50)).has_value());
  process.Signal(SIGKILL);
  EXPECT_EQ(process.AwaitExit(kPatience), 128 + SIGKILL);
}

TEST(ProcessTest, FindsDescendantsByTheirEnvironment) {
  const std::string mark = absl::StrCat("PROCESS_TEST_MARK=", getpid());
  {
    Process process({"/bin/sh", "-c", "sleep 60 & echo started; wait"}, {mark});
    ASSERT_TRUE(process.AwaitOut("started", kPatience).has_value());
    EXPECT_EQ(ProcessesWithEnvironment(mark).size(), 2u);
    for (const pid_t pid : ProcessesWithEnvironment(mark)) kill(pid, SIGKILL);
    EXPECT_EQ(process.AwaitExit(kPatience), 128 + SIGKILL);
  }
  const absl::Time until = absl::Now() + kPatience;
  while (!ProcessesWithEnvironment(mark).empty() && absl::Now() < until) poll(nullptr, 0, 10);
  EXPECT_TRUE(ProcessesWithEnvironment(mark).empty());
}

}  // namespace
}  // namespace perigee
