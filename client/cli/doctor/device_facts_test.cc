// The description, with shell scripts in place of the worker.
#include "client/cli/doctor/device_facts.h"

#include <sys/stat.h>

#include <cstdlib>
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

TEST(DeviceFactsTest, TakesWhatTheWorkerTells) {
  const DeviceFacts facts =
      GatherDeviceFacts(Program("test \"$*\" = --describe_devices=true || exit 2\n"
                                "echo 'devices 2'\necho 'device.1.name NVIDIA H200'\necho noise\n"
                                "echo 'device.0.peers'"));
  EXPECT_EQ(facts.problem, "");
  EXPECT_EQ(facts.devices(), 2);
  EXPECT_EQ(facts.Of(1, "name"), "NVIDIA H200");
  EXPECT_EQ(facts.Of(0, "name"), "");
  EXPECT_EQ(facts.told.size(), 2u) << "lines of another form are left out";
}

TEST(DeviceFactsTest, AWorkerThatHangsHasToldWhatCameBefore) {
  const DeviceFacts facts =
      GatherDeviceFacts(Program("echo 'devices 1'\nexec sleep 600"), absl::Milliseconds(300));
  EXPECT_EQ(facts.devices(), 1);
  EXPECT_THAT(facts.problem, HasSubstr("within 300ms; its last line: devices 1"));
}

TEST(DeviceFactsTest, AnotherEndIsDescribed) {
  const DeviceFacts facts = GatherDeviceFacts(Program("echo 'devices many'\nkill -SEGV $$"));
  EXPECT_EQ(facts.devices(), 0);
  EXPECT_THAT(facts.problem, HasSubstr("was killed by signal 11"));
  EXPECT_THAT(GatherDeviceFacts("/nonexistent/worker").problem, HasSubstr("/nonexistent/worker"));
}

TEST(DeviceFactsTest, ThePipeOfMpsIsFound) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/mps");
  setenv("CUDA_MPS_PIPE_DIRECTORY", folder.c_str(), 1);
  EXPECT_EQ(GatherDeviceFacts("/nonexistent/worker").mps_pipe, "");
  mkdir(folder.c_str(), 0700);
  std::ofstream(folder + "/control") << "";
  EXPECT_EQ(GatherDeviceFacts("/nonexistent/worker").mps_pipe, folder + "/control");
}

}  // namespace
}  // namespace perigee
