// The command as its users run it, on this machine.
#include "client/cli/doctor/doctor_command.h"

#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "client/cli/run_cli.h"

namespace perigee {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

class DoctorCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"TMPDIR", "PERIGEE_ADDRESS", "PERIGEE_BIN_DIR"}) unsetenv(name);
  }

  // Runs it with --json: its exit status, and the names of its checks by their state.
  int Examine(std::vector<std::string> args) {
    args.insert(args.begin(), {"doctor", "--json"});
    const CliResult result = RunCli(args);
    google::protobuf::Value json;
    EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(result.out, &json).ok()) << result.out;
    const auto& fields = json.struct_value().fields();
    backend_ = fields.at("backend").string_value();
    names_.clear();
    failed_.clear();
    for (const auto& value : fields.at("checks").list_value().values()) {
      const auto& check = value.struct_value().fields();
      const std::string name = check.at("name").string_value();
      EXPECT_TRUE(names_.insert(name).second) << name << " is there twice";
      const std::string state = check.at("state").string_value();
      EXPECT_THAT(state, AnyOf("ok", "warn", "FAIL"));
      EXPECT_EQ(check.at("remedy").string_value().empty(), state == "ok") << name;
      EXPECT_FALSE(check.at("found").string_value().empty()) << name;
      if (state == "FAIL") failed_.insert(name);
    }
    EXPECT_EQ(fields.at("fail").number_value(), failed_.size());
    EXPECT_EQ(result.status, failed_.empty() ? kDone : kFailed);
    return result.status;
  }

  std::string backend_;
  std::set<std::string> names_;
  std::set<std::string> failed_;
};

TEST_F(DoctorCommandTest, TheHostBackendRunsHere) {
  Examine({"--backend", "host", "--ranks", "1"});
  EXPECT_EQ(backend_, "host");
  EXPECT_THAT(names_, IsSupersetOf({"kernel", "memfd", "futex", "pidfd", "descriptor_passing",
                                    "proc", "memory", "shm", "descriptors", "cpus", "programs",
                                    "run_directory", "run_directory_space", "socket_path",
                                    "loopback", "coordinator_address"}));
  EXPECT_THAT(names_, Not(Contains("cuda_devices")));
  // What a machine that builds and tests may be short of.
  for (const std::string& name : failed_) EXPECT_THAT(name, AnyOf("memory", "descriptors"));
}

TEST_F(DoctorCommandTest, DevicesAreDescribedOrMissed) {
  Examine({"--backend", "cuda"});
  EXPECT_EQ(backend_, "cuda");
  EXPECT_THAT(names_, IsSupersetOf({"device_description", "cuda_driver", "cuda_devices", "nvml",
                                    "nccl", "locked_memory"}));
  const bool found = failed_.count("cuda_devices") == 0;
  EXPECT_EQ(names_.count("cuda_device_0"), found ? 1u : 0u);
  Examine({});
  EXPECT_EQ(backend_, found ? "cuda" : "host") << "what is found decides";
}

TEST_F(DoctorCommandTest, WhatIsWrongIsNamed) {
  setenv("TMPDIR", "/nonexistent", 1);
  setenv("PERIGEE_BIN_DIR", "/nonexistent", 1);
  setenv("PERIGEE_ADDRESS", "127.0.0.1:1", 1);
  EXPECT_EQ(Examine({"--address", "192.0.2.1:0"}), kFailed);
  EXPECT_THAT(failed_, IsSupersetOf({"programs", "run_directory", "coordinator_address"}));
  EXPECT_THAT(names_, Contains("perigee_address"));
}

TEST_F(DoctorCommandTest, TextHasALineForEachCheck) {
  const CliResult result = RunCli({"doctor", "--backend", "host", "--ranks", "1"});
  EXPECT_THAT(result.out, HasSubstr("ok    memfd  "));
  EXPECT_THAT(result.out, HasSubstr("1 worker on the host backend\n"));
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(DoctorCommandTest, WrongUse) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"doctor", "--backend", "tpu"}, "--backend is 'tpu', expected auto|host|cuda"},
      {{"doctor", "--ranks", "0"}, "--ranks is '0'"},
      {{"doctor", "--addres", "x"}, "unknown flag --addres, did you mean --address?"},
      {{"doctor", "--address", "here"}, "--address is 'here', expected HOST:PORT"},
      {{"doctor", "now"}, "now"},
  };
  for (const auto& [args, message] : cases) {
    const CliResult result = RunCli(args);
    EXPECT_EQ(result.status, kWrongUse) << message;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_EQ(LineCount(result.err), 2);
    EXPECT_THAT(result.out, IsEmpty());
  }
}

}  // namespace
}  // namespace perigee
