#include "client/cli/cluster/child_process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/cluster/line_pipe.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

ChildOptions Shell(const std::string& script) {
  ChildOptions options;
  options.path = "/bin/sh";
  options.args = {"sh", "-c", script};
  return options;
}

int Wait(pid_t pid) {
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

TEST(ChildProcessTest, SaysHowAChildEnded) {
  auto pid = StartChild(Shell("exit 3"));
  ASSERT_TRUE(pid.ok()) << pid.status();
  EXPECT_EQ(DescribeExit(Wait(*pid)), "exited with status 3");
  pid = StartChild(Shell("kill -9 $$"));
  ASSERT_TRUE(pid.ok()) << pid.status();
  EXPECT_THAT(DescribeExit(Wait(*pid)), HasSubstr("was killed by signal 9"));
}

TEST(ChildProcessTest, AProgramThatCannotBeExecutedIsNamed) {
  ChildOptions options = Shell("");
  options.path = "/nonexistent/program";
  EXPECT_THAT(std::string(StartChild(options).status().message()),
              HasSubstr("/nonexistent/program: No such file"));
}

TEST(ChildProcessTest, InheritsOnlyWhatIsKept) {
  auto kept = NewPipe(), dropped = NewPipe();
  ASSERT_TRUE(kept.ok() && dropped.ok());
  ChildOptions options = Shell(absl::StrCat("echo kept > /proc/self/fd/", kept->write.get(),
                                            "; test ! -e /proc/$$/fd/", dropped->write.get()));
  options.keep = {kept->write.get()};
  const auto pid = StartChild(options);
  ASSERT_TRUE(pid.ok()) << pid.status();
  EXPECT_EQ(Wait(*pid), 0) << "the other pipe is open in the child";
  kept->write.Reset();
  LineReader reader(std::move(kept->read));
  EXPECT_EQ(reader.Read(), std::vector<std::string>{"kept"});
}

TEST(ChildProcessTest, StandardErrorIsAppendedToTheLog) {
  ChildOptions options = Shell("echo first >&2");
  options.log_path = absl::StrCat(testing::TempDir(), "/child.log");
  for (const std::string& word : {std::string("first"), std::string("second")}) {
    options.args[2] = absl::StrCat("echo ", word, " >&2");
    const auto pid = StartChild(options);
    ASSERT_TRUE(pid.ok()) << pid.status();
    Wait(*pid);
  }
  std::ifstream log(options.log_path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(log), {}), "first\nsecond\n");
}

TEST(ChildProcessTest, OutputGoesWhereTheCallerReads) {
  auto output = NewPipe();
  ASSERT_TRUE(output.ok());
  ChildOptions options = Shell("echo out; echo err >&2");
  options.output_fd = output->write.get();
  const auto pid = StartChild(options);
  ASSERT_TRUE(pid.ok()) << pid.status();
  Wait(*pid);
  output->write.Reset();
  LineReader reader(std::move(output->read));
  EXPECT_EQ(reader.Read(), (std::vector<std::string>{"out", "err"}));
}

TEST(ChildProcessTest, BlockedSignalsReachTheChild) {
  sigset_t signals, before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, &before);
  const auto pid = StartChild(Shell("exec sleep 60"));
  sigprocmask(SIG_SETMASK, &before, nullptr);
  ASSERT_TRUE(pid.ok()) << pid.status();
  kill(*pid, SIGTERM);
  EXPECT_THAT(DescribeExit(Wait(*pid)), HasSubstr("signal 15"));
}

}  // namespace
}  // namespace perigee
