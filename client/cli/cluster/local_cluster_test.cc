// The supervisor process and its cluster, with shell scripts in place of coordinator and workers.
// The test program itself is the one that is executed again as the supervisor.
#include "client/cli/cluster/local_cluster.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/cluster/supervise_command.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using Kind = SupervisorEvent::Kind;

constexpr absl::Duration kPatience = absl::Seconds(30);

// Announces itself and lives until its death descriptor ends. BEHAVIOUR is run before.
constexpr const char* kProgram = R"(#!/bin/sh
for argument; do
  case $argument in
    --name=*) name=${argument#*=} ;;
    --ready_fd=*) ready=${argument#*=} ;;
    --death_fd=*) death=${argument#*=} ;;
    --list_devices=*) echo 'device 0 sms 132 name Imagined'; exit ;;
    --socket_dir=*) : > "${argument#*=}/$name-$$.sock" ;;
  esac
done
BEHAVIOUR
echo "address-of-$$" > /proc/self/fd/$ready
exec cat < /proc/self/fd/$death > /dev/null
)";

class LocalClusterTest : public ::testing::Test {
 protected:
  LocalClusterTest() : bin_dir_(absl::StrCat(testing::TempDir(), "/bin")) {
    std::filesystem::create_directories(bin_dir_);
    setenv("PERIGEE_BIN_DIR", bin_dir_.c_str(), 1);
    Program("perigee-coordinator", "");
    Program("perigee-worker", "");
  }

  void Program(const std::string& name, const std::string& behaviour) {
    std::string text = kProgram;
    text.replace(text.find("BEHAVIOUR"), 9, behaviour);
    const std::string path = absl::StrCat(bin_dir_, "/", name);
    // A file of its own each time: one that is being executed cannot be written.
    std::filesystem::remove(path);
    std::ofstream(path) << text;
    chmod(path.c_str(), 0700);
  }

  static std::unique_ptr<LocalCluster> Start(const SupervisorOptions& options) {
    auto cluster = LocalCluster::Start(options);
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    return cluster.ok() ? *std::move(cluster) : nullptr;
  }

  // The first event of this kind from now on.
  static SupervisorEvent Await(LocalCluster& cluster, Kind kind) {
    const absl::Time until = absl::Now() + kPatience;
    while (absl::Now() < until && cluster.event_fd() >= 0) {
      pollfd fd = {cluster.event_fd(), POLLIN, 0};
      poll(&fd, 1, 1000);
      for (const SupervisorEvent& event : cluster.TakeEvents()) {
        if (event.kind == kind) return event;
      }
    }
    ADD_FAILURE() << "no such event";
    return {};
  }

  static bool Alive(pid_t pid) { return kill(pid, 0) == 0; }

  // Whether they have all ended; they are no children of ours, so nobody tells.
  static bool AllGone(const std::set<pid_t>& pids) {
    const absl::Time until = absl::Now() + absl::Seconds(10);
    for (const pid_t pid : pids) {
      while (Alive(pid)) {
        if (absl::Now() > until) return false;
        poll(nullptr, 0, 10);
      }
    }
    return true;
  }

  static std::set<pid_t> Pids(const LocalCluster& cluster) {
    std::set<pid_t> pids;
    for (const auto& [name, worker] : cluster.workers()) pids.insert(worker.pid);
    return pids;
  }

  const std::string bin_dir_;
};

TEST_F(LocalClusterTest, StartsAllAndLeavesNothing) {
  const auto cluster = Start({.ranks = 3});
  ASSERT_TRUE(cluster->WaitUntilReady(-1).ok());
  EXPECT_THAT(cluster->coordinator(), HasSubstr("address-of-"));
  EXPECT_EQ(cluster->workers().size(), 3u);
  const std::set<pid_t> pids = Pids(*cluster);
  for (const pid_t pid : pids) EXPECT_TRUE(Alive(pid));
  const std::string directory = cluster->directory();
  EXPECT_TRUE(std::filesystem::exists(directory));
  cluster->Stop();
  for (const pid_t pid : pids) EXPECT_FALSE(Alive(pid));
  EXPECT_FALSE(std::filesystem::exists(directory));
}

TEST_F(LocalClusterTest, ALostWorkerComesBackWithoutItsOldSocket) {
  const auto cluster = Start({.ranks = 2});
  ASSERT_TRUE(cluster->WaitUntilReady(-1).ok());
  const pid_t before = cluster->workers().at("w1").pid;
  const std::string sockets = cluster->directory() + "/sockets/w1-";
  ASSERT_TRUE(std::filesystem::exists(absl::StrCat(sockets, before, ".sock")));
  kill(before, SIGKILL);
  const SupervisorEvent lost = Await(*cluster, Kind::kLost);
  EXPECT_EQ(lost.name, "w1");
  EXPECT_THAT(lost.text, HasSubstr("killed by signal 9"));
  const SupervisorEvent back = Await(*cluster, Kind::kWorker);
  EXPECT_EQ(back.name, "w1");
  EXPECT_NE(back.pid, before);
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat(sockets, before, ".sock")));
}

TEST_F(LocalClusterTest, WithoutRestartALossIsOnlyTold) {
  const auto cluster = Start({.ranks = 2, .restart = false});
  ASSERT_TRUE(cluster->WaitUntilReady(-1).ok());
  kill(cluster->workers().at("w0").pid, SIGKILL);
  EXPECT_THAT(Await(*cluster, Kind::kLost).text, testing::Not(HasSubstr("again")));
  EXPECT_FALSE(cluster->failure().has_value());
}

TEST_F(LocalClusterTest, AWorkerThatKeepsEndingIsGivenUp) {
  const auto cluster = Start({.ranks = 1});
  ASSERT_TRUE(cluster->WaitUntilReady(-1).ok());
  Program("perigee-worker", "echo 'worker: out of luck' >&2; exit 3");
  kill(cluster->workers().at("w0").pid, SIGKILL);
  const SupervisorEvent failed = Await(*cluster, Kind::kFailed);
  EXPECT_THAT(failed.text, HasSubstr("w0 ended 5 times"));
  EXPECT_THAT(failed.text, HasSubstr("exited with status 3: worker: out of luck"));
}

TEST_F(LocalClusterTest, AProgramThatRefusesItsArgumentsIsQuoted) {
  Program("perigee-worker", "echo 'worker: device too old for cuda' >&2; exit 2");
  const auto cluster = Start({.ranks = 1, .backend = "cuda"});
  const absl::Status ready = cluster->WaitUntilReady(-1);
  EXPECT_TRUE(absl::IsInvalidArgument(ready)) << ready;
  EXPECT_THAT(std::string(ready.message()), HasSubstr("worker: device too old for cuda"));
  EXPECT_EQ(cluster->failure()->exit_status, 2);
}

TEST_F(LocalClusterTest, WorkersAreToldTheirPartOfASharedGpu) {
  Program("perigee-worker", absl::StrCat("echo \"$*\" > ", bin_dir_, "/$name.arguments"));
  const auto cluster =
      Start({.ranks = 4, .backend = "cuda", .shared_gpu = true, .memory_handle = "fd"});
  ASSERT_TRUE(cluster->WaitUntilReady(-1).ok());
  for (const char* name : {"w0", "w3"}) {
    std::string arguments;
    std::getline(std::ifstream(absl::StrCat(bin_dir_, "/", name, ".arguments")), arguments);
    EXPECT_THAT(arguments, HasSubstr(" --device=0 --sms=33 --memory_handle=fd "));
  }
}

TEST_F(LocalClusterTest, TooFewDevicesAreToldBeforeAnythingIsStarted) {
  Program("perigee-coordinator", absl::StrCat("touch ", bin_dir_, "/started"));
  const auto cluster = LocalCluster::Start({.ranks = 2, .backend = "cuda"});
  EXPECT_TRUE(absl::IsInvalidArgument(cluster.status())) << cluster.status();
  EXPECT_THAT(std::string(cluster.status().message()),
              HasSubstr("2 workers need a device each, and this machine has 1 (Imagined)"));
  EXPECT_FALSE(std::filesystem::exists(bin_dir_ + "/started"));
}

TEST_F(LocalClusterTest, ACoordinatorThatDoesNotStartIsQuoted) {
  Program("perigee-coordinator", "echo 'address is in use' >&2; exit 1");
  const auto cluster = Start({.ranks = 1});
  const absl::Status ready = cluster->WaitUntilReady(-1);
  EXPECT_TRUE(absl::IsFailedPrecondition(ready)) << ready;
  EXPECT_THAT(std::string(ready.message()), HasSubstr("address is in use"));
}

TEST_F(LocalClusterTest, TheLossOfTheCoordinatorEndsIt) {
  Program("perigee-coordinator", absl::StrCat("echo $$ > ", bin_dir_, "/pid"));
  const auto cluster = Start({.ranks = 1});
  ASSERT_TRUE(cluster->WaitUntilReady(-1).ok());
  const pid_t worker = cluster->workers().at("w0").pid;
  pid_t coordinator = -1;
  std::ifstream(bin_dir_ + "/pid") >> coordinator;
  kill(coordinator, SIGKILL);
  EXPECT_THAT(Await(*cluster, Kind::kFailed).text, HasSubstr("coordinator was lost"));
  cluster->Stop();
  EXPECT_FALSE(Alive(worker));
}

TEST_F(LocalClusterTest, AWorkerThatIgnoresSignalsIsKilled) {
  Program("perigee-worker", "trap '' TERM");
  const auto cluster = Start({.ranks = 1});
  ASSERT_TRUE(cluster->WaitUntilReady(-1).ok());
  const pid_t worker = cluster->workers().at("w0").pid;
  kill(worker, SIGSTOP);
  cluster->Stop();
  EXPECT_FALSE(Alive(worker));
}

TEST_F(LocalClusterTest, AnInterruptEndsTheWait) {
  Program("perigee-worker", "sleep 60");
  const auto cluster = Start({.ranks = 1});
  auto interrupt = NewPipe();
  ASSERT_TRUE(interrupt.ok());
  interrupt->write.Reset();
  EXPECT_TRUE(absl::IsCancelled(cluster->WaitUntilReady(interrupt->read.get())));
}

TEST_F(LocalClusterTest, AKilledSupervisorLeavesNothing) {
  // The supervisor is the parent of every worker.
  Program("perigee-worker", absl::StrCat("echo $PPID > ", bin_dir_, "/supervisor"));
  const auto cluster = Start({.ranks = 2});
  ASSERT_TRUE(cluster->WaitUntilReady(-1).ok());
  pid_t supervisor = -1;
  std::ifstream(bin_dir_ + "/supervisor") >> supervisor;
  const std::set<pid_t> workers = Pids(*cluster);
  kill(supervisor, SIGKILL);
  EXPECT_THAT(Await(*cluster, Kind::kFailed).text, HasSubstr("supervises the cluster was lost"));
  const std::string directory = cluster->directory();
  cluster->Stop();
  EXPECT_TRUE(AllGone(workers));
  EXPECT_FALSE(std::filesystem::exists(directory));
}

TEST_F(LocalClusterTest, AKilledOwnerLeavesNothing) {
  auto told = NewPipe();
  ASSERT_TRUE(told.ok());
  const pid_t owner = fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    const auto cluster = Start({.ranks = 2});
    if (!cluster->WaitUntilReady(-1).ok()) _exit(1);
    std::string text = absl::StrCat(cluster->directory(), "\n");
    for (const pid_t pid : Pids(*cluster)) absl::StrAppend(&text, pid, "\n");
    if (write(told->write.get(), text.data(), text.size()) < 0) _exit(1);
    kill(getpid(), SIGKILL);
  }
  told->write.Reset();
  waitpid(owner, nullptr, 0);
  LineReader reader(std::move(told->read));
  const std::vector<std::string> lines = reader.Read();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(AllGone({std::stoi(lines[1]), std::stoi(lines[2])}));
  const absl::Time until = absl::Now() + absl::Seconds(5);
  while (std::filesystem::exists(lines[0]) && absl::Now() < until) poll(nullptr, 0, 10);
  EXPECT_FALSE(std::filesystem::exists(lines[0]));
}

TEST_F(LocalClusterTest, APlaceWithoutProgramsIsNamed) {
  std::filesystem::remove(bin_dir_ + "/perigee-worker");
  const auto cluster = LocalCluster::Start({.ranks = 1});
  EXPECT_THAT(std::string(cluster.status().message()), HasSubstr(bin_dir_ + "/perigee-worker"));
}

}  // namespace
}  // namespace perigee

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == perigee::kSuperviseCommand.name) {
    return perigee::kSuperviseCommand.run({argv + 2, argv + argc});
  }
  testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
