#include "tests/integration/cluster_fixture.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "google/protobuf/util/json_util.h"

namespace perigee {
namespace {

std::string CommandLine(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/cmdline"), std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  std::string line = text.str();
  for (char& c : line) c = c == '\0' ? ' ' : c;
  return line;
}

}  // namespace

ClusterTest::ClusterTest() {
  char path[] = "/tmp/pgt-XXXXXX";
  EXPECT_NE(mkdtemp(path), nullptr);
  scratch_ = path;
  mark_ = absl::StrCat("TMPDIR=", scratch_);
}

ClusterTest::~ClusterTest() {
  cluster_.reset();
  EXPECT_TRUE(NothingLeft(absl::Seconds(10)));
  for (const pid_t pid : Processes()) kill(pid, SIGKILL);
  std::error_code ignored;
  std::filesystem::remove_all(scratch_, ignored);
}

std::unique_ptr<Process> ClusterTest::Perigee(const std::vector<std::string>& args,
                                              const std::vector<std::string>& environment) const {
  std::vector<std::string> argv = {"client/cli/perigee"};
  argv.insert(argv.end(), args.begin(), args.end());
  std::vector<std::string> entries = environment;
  entries.push_back(mark_);
  return std::make_unique<Process>(argv, entries);
}

ClusterTest::Result ClusterTest::RunPerigee(const std::vector<std::string>& args,
                                            const std::vector<std::string>& environment) const {
  const auto process = Perigee(args, environment);
  Result result;
  result.status = process->AwaitExit(2 * kStepTimeout).value_or(-1);
  result.out = process->out();
  result.err = process->err();
  return result;
}

void ClusterTest::StartCluster(int ranks, const std::vector<std::string>& more) {
  std::vector<std::string> args = {"up", "--ranks", absl::StrCat(ranks)};
  args.insert(args.end(), more.begin(), more.end());
  cluster_ = Perigee(args);
  ASSERT_TRUE(cluster_->AwaitOut("ready:", kStepTimeout).has_value()) << cluster_->err();
  worker_pids_.clear();
  for (const std::string& line : Lines(cluster_->out())) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    if (words[0] == "coordinator") address_ = words[1];
    if (words[0] == "worker") worker_pids_.push_back(std::stoi(words[4]));
  }
  ASSERT_EQ(worker_pids_.size(), static_cast<size_t>(ranks));
}

std::vector<pid_t> ClusterTest::Processes() const { return ProcessesWithEnvironment(mark_); }

pid_t ClusterTest::AwaitWorker(int rank) const {
  const std::string name = absl::StrCat("--name=w", rank, " ");
  const absl::Time until = absl::Now() + kStepTimeout;
  while (absl::Now() < until) {
    for (const pid_t pid : Processes()) {
      const std::string line = CommandLine(pid);
      if (absl::StrContains(line, "worker") && absl::StrContains(line, name)) return pid;
    }
    poll(nullptr, 0, 20);
  }
  return -1;
}

::testing::AssertionResult ClusterTest::NothingLeft(absl::Duration timeout) const {
  const absl::Time until = absl::Now() + timeout;
  while (true) {
    std::string left;
    for (const pid_t pid : Processes()) absl::StrAppend(&left, pid, ": ", CommandLine(pid), "\n");
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_, ignored)) {
      if (absl::StartsWith(entry.path().filename().string(), "perigee-")) {
        absl::StrAppend(&left, entry.path().string(), "\n");
      }
    }
    if (left.empty()) return ::testing::AssertionSuccess();
    if (absl::Now() > until) return ::testing::AssertionFailure() << "left behind:\n" << left;
    poll(nullptr, 0, 20);
  }
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

google::protobuf::Struct ParseJson(const std::string& text) {
  google::protobuf::Struct object;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &object);
  EXPECT_TRUE(status.ok()) << status.ToString() << "\n" << text;
  return object;
}

}  // namespace perigee
