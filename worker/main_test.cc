// perigee-worker as a process.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device/device_info.h"
#include "proto/local/file_descriptor.h"
#include "tests/testing/process.h"
#include "worker/testing/fake_coordinator.h"
#include "worker/testing/scratch_directory.h"

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Counts = FakeCoordinator::Counts;

constexpr char kBinary[] = "worker/perigee-worker";
constexpr absl::Duration kLong = absl::Seconds(30);

// Ends for this process, closed when another program is run, and for the child.
struct Pipe {
  FileDescriptor ours, childs;
};
Pipe MakePipe(bool child_reads) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  Pipe made;
  made.ours = FileDescriptor(ends[child_reads ? 1 : 0]);
  made.childs = FileDescriptor(ends[child_reads ? 0 : 1]);
  EXPECT_EQ(fcntl(made.ours.get(), F_SETFD, FD_CLOEXEC), 0);
  return made;
}

class MainTest : public ::testing::Test {
 protected:
  std::unique_ptr<Process> Run(std::vector<std::string> flags) {
    flags.insert(flags.begin(), kBinary);
    return std::make_unique<Process>(flags, std::vector<std::string>());
  }
  std::vector<std::string> Flags(std::vector<std::string> more = {}) const {
    std::vector<std::string> flags = {"--name=w0", "--coordinator=" + coordinator_.address(),
                                      "--socket_dir=" + directory_.path(), "--host=here"};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }
  std::unique_ptr<Process> RunRegistered(std::vector<std::string> more = {}) {
    std::unique_ptr<Process> worker = Run(Flags(std::move(more)));
    EXPECT_TRUE(coordinator_.Await("workers/w0", [](const Counts& c) { return c.heartbeats > 0; }));
    return worker;
  }
  // One line on stderr, this exit status, nothing on stdout.
  void ExpectRefused(std::vector<std::string> flags, int exit_status, const std::string& names) {
    const std::unique_ptr<Process> worker = Run(std::move(flags));
    EXPECT_EQ(worker->AwaitExit(kLong), exit_status);
    EXPECT_EQ(worker->out(), "");
    EXPECT_THAT(worker->err(), HasSubstr(names));
    EXPECT_THAT(worker->err(), MatchesRegex("perigee-worker: [^\n]*\n"));
    EXPECT_TRUE(directory_.empty());
  }

  ScratchDirectory directory_;
  FakeCoordinator coordinator_;
};

TEST_F(MainTest, WrongFlagsAreOneLineAndStatusTwo) {
  ExpectRefused(Flags({"--colour=red"}), 2, "unknown flag --colour");
  ExpectRefused(Flags({"--flagfile=/dev/null"}), 2, "unknown flag --flagfile");
  ExpectRefused(Flags({"--threads=many"}), 2, "flag --threads does not take 'many'");
  ExpectRefused(Flags({"--threads"}), 2, "flag --threads has no value");
  ExpectRefused(Flags({"--threads=0"}), 2, "threads is 0");
  ExpectRefused(Flags({"--attach_uids=1,me"}), 2, "flag --attach_uids has 'me'");
  ExpectRefused(Flags({"--attach_uids=1"}), 2, "no attach_dir");
  ExpectRefused(Flags({"extra"}), 2, "unexpected argument 'extra'");
  ExpectRefused({"--name=w0"}, 2, "--coordinator is required");
  ExpectRefused(Flags({"--name=W0"}), 2, "worker name");
  ExpectRefused(Flags({"--backend=abacus"}), 2, "abacus");
}

TEST_F(MainTest, WhatIsForADeviceIsRefusedByTheHostBackend) {
  ExpectRefused(Flags({"--device=0"}), 2, "--device is for --backend=cuda");
  ExpectRefused(Flags({"--sms=16"}), 2, "--sms is for --backend=cuda");
  ExpectRefused(Flags({"--memory_handle=fd"}), 2, "--memory_handle is for --backend=cuda");
}

TEST_F(MainTest, WrongDeviceFlagsAreToldOnEveryMachine) {
  ExpectRefused(Flags({"--backend=cuda", "--device=-1"}), 2, "device is -1");
  ExpectRefused(Flags({"--backend=cuda", "--device=first"}), 2, "does not take 'first'");
  ExpectRefused(Flags({"--backend=cuda", "--sms=-4"}), 2, "SMs of the worker is -4");
  ExpectRefused(Flags({"--backend=cuda", "--memory_handle=ipc"}), 2, "memory handle is \"ipc\"");
}

TEST_F(MainTest, WithoutADeviceCudaSaysWhatIsThereInstead) {
  const CudaDevices devices = QueryCudaDevices();
  if (!devices.devices.empty()) GTEST_SKIP() << "there is a device";
  ExpectRefused(Flags({"--backend=cuda"}), 2, "cuda: " + DescribeCudaDevices(devices));
  ExpectRefused({"--list_devices=true"}, 2, "cuda: " + DescribeCudaDevices(devices));
}

TEST_F(MainTest, DevicesAreListed) {
  const CudaDevices devices = QueryCudaDevices();
  if (devices.devices.empty()) GTEST_SKIP() << DescribeCudaDevices(devices);
  const std::unique_ptr<Process> worker = Run({"--list_devices=true"});
  EXPECT_EQ(worker->AwaitExit(kLong), 0);
  EXPECT_THAT(worker->out(), HasSubstr("device 0 sms "));
  EXPECT_THAT(worker->out(), HasSubstr(devices.devices[0].name));
}

TEST_F(MainTest, DevicesAreDescribedWhereThereAreNoneToo) {
  const std::unique_ptr<Process> worker = Run({"--describe_devices=true"});
  EXPECT_EQ(worker->AwaitExit(kLong), 0);
  const size_t devices = QueryCudaDevices().devices.size();
  EXPECT_THAT(worker->out(), HasSubstr("\ndevices " + std::to_string(devices) + "\n"));
  EXPECT_EQ(worker->err(), "");
}

TEST_F(MainTest, HelpGoesToStdout) {
  const std::unique_ptr<Process> worker = Run({"--help"});
  EXPECT_EQ(worker->AwaitExit(kLong), 0);
  EXPECT_THAT(worker->out(), AllOf(HasSubstr("--coordinator="), HasSubstr("--death_fd=-1")));
  EXPECT_EQ(worker->err(), "");
}

TEST_F(MainTest, APortInUseIsOneLineAndStatusOne) {
  ExpectRefused(Flags({"--address=" + coordinator_.address()}), 1,
                coordinator_.address() + " is in use");
}

TEST_F(MainTest, SaysWhenItIsReadyAndLeavesOnASignal) {
  for (const int number : {SIGTERM, SIGINT}) {
    Pipe ready = MakePipe(/*child_reads=*/false);
    const std::unique_ptr<Process> worker =
        RunRegistered({"--ready_fd=" + std::to_string(ready.childs.get())});
    ready.childs.Reset();
    char line[100] = {};
    std::string all;
    for (ssize_t got; (got = read(ready.ours.get(), line, sizeof(line))) > 0;)
      all.append(line, got);
    EXPECT_EQ(all, coordinator_.registered("workers/w0").address() + "\n");
    EXPECT_FALSE(directory_.empty());
    worker->Signal(number);
    EXPECT_EQ(worker->AwaitExit(kLong), 0);
    EXPECT_EQ(worker->out(), "");
    EXPECT_TRUE(directory_.empty());
  }
}

TEST_F(MainTest, EndsWithItsSupervisor) {
  Pipe death = MakePipe(/*child_reads=*/true);
  const std::unique_ptr<Process> worker =
      RunRegistered({"--death_fd=" + std::to_string(death.childs.get())});
  death.childs.Reset();
  death.ours.Reset();
  EXPECT_EQ(worker->AwaitExit(kLong), 1);
  EXPECT_TRUE(directory_.empty());
}

TEST_F(MainTest, EndsWithItsSupervisorWhileItStillLooksForTheCoordinator) {
  Pipe death = MakePipe(/*child_reads=*/true);
  const std::string gone = FakeCoordinator().address();
  const std::unique_ptr<Process> worker =
      Run(Flags({"--coordinator=" + gone, "--death_fd=" + std::to_string(death.childs.get())}));
  death.childs.Reset();
  death.ours.Reset();
  EXPECT_EQ(worker->AwaitExit(kLong), 1);
  EXPECT_TRUE(directory_.empty());
}

TEST_F(MainTest, AWorkerThatWasStoppedForLongerThanItsLeaseExits) {
  coordinator_.SetLease(absl::Milliseconds(20), absl::Milliseconds(1000));
  const std::unique_ptr<Process> worker = RunRegistered();
  worker->Signal(SIGSTOP);
  EXPECT_EQ(worker->AwaitExit(absl::Milliseconds(1500)), absl::nullopt);
  worker->Signal(SIGCONT);
  EXPECT_EQ(worker->AwaitExit(kLong), 1);
  EXPECT_THAT(worker->err(), HasSubstr("slept for"));
  EXPECT_TRUE(directory_.empty());
}

TEST_F(MainTest, AProxyIsForOthers) {
  std::vector<std::string> flags = Flags();
  flags.insert(flags.begin(), kBinary);
  const Process worker(flags, {"http_proxy=http://127.0.0.1:1", "no_proxy="});
  EXPECT_TRUE(coordinator_.Await("workers/w0", [](const Counts& c) { return c.heartbeats > 0; }));
}

TEST_F(MainTest, AReplacedWorkerExits) {
  const std::unique_ptr<Process> worker = RunRegistered();
  coordinator_.EndLease("workers/w0", absl::AbortedError("a newer incarnation is registered"));
  EXPECT_EQ(worker->AwaitExit(kLong), 1);
  EXPECT_THAT(worker->err(), HasSubstr("a newer incarnation is registered"));
  EXPECT_TRUE(directory_.empty());
}

}  // namespace
}  // namespace perigee
