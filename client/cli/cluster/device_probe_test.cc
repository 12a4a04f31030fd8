// The probe, with shell scripts in place of the worker.
#include "client/cli/cluster/device_probe.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

// A program of its own for each test: one that is being executed cannot be written.
std::string Program(const std::string& script) {
  std::string path = absl::StrCat(testing::TempDir(), "/",
                                  testing::UnitTest::GetInstance()->current_test_info()->name());
  std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
  chmod(path.c_str(), 0700);
  return path;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(DeviceProbeTest, TakesTheListOfTheWorker) {
  const auto devices = ProbeDevices(Program(
      "test \"$*\" = --list_devices=true || exit 2\n"
      "echo 'device 0 sms 132 name NVIDIA H200'\necho 'device 1 sms 114 name NVIDIA H100'"));
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[1].sms, 114);
}

TEST(DeviceProbeTest, ARefusalIsPassedOn) {
  const auto devices = ProbeDevices(Program("echo 'worker: no device' >&2; exit 2"));
  EXPECT_TRUE(absl::IsInvalidArgument(devices.status())) << devices.status();
  EXPECT_EQ(Message(devices.status()), "worker: no device");
}

TEST(DeviceProbeTest, AnyOtherEndIsDescribed) {
  const auto devices = ProbeDevices(Program("echo 'worker: out of luck' >&2; exit 3"));
  EXPECT_TRUE(absl::IsFailedPrecondition(devices.status())) << devices.status();
  EXPECT_THAT(Message(devices.status()), HasSubstr("exited with status 3: worker: out of luck"));
}

TEST(DeviceProbeTest, AWorkerThatDoesNotAnswerIsNotAwaitedForEver) {
  const auto devices = ProbeDevices(Program("exec sleep 600"), absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(devices.status())) << devices.status();
}

TEST(DeviceProbeTest, AProgramThatIsNotThereIsNamed) {
  const auto devices = ProbeDevices("/nonexistent/worker");
  EXPECT_THAT(Message(devices.status()), HasSubstr("/nonexistent/worker"));
}

}  // namespace
}  // namespace perigee
