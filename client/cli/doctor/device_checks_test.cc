#include "client/cli/doctor/device_checks.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

DeviceFacts Healthy() {
  DeviceFacts facts;
  for (const char* line : {"built_with_cuda yes",
                           "driver_cuda 13000",
                           "runtime_cuda 13000",
                           "driver 580.159.03",
                           "nccl 2.28.9",
                           "devices 2",
                           "device.0.name NVIDIA H200",
                           "device.0.compute 9.0",
                           "device.0.sms 132",
                           "device.0.memory_bytes 150110011392",
                           "device.0.uuid GPU-1",
                           "device.0.nvlinks 18",
                           "device.0.persistence on",
                           "device.0.peers 1",
                           "device.0.handle.fd ok",
                           "device.0.handle.fabric ok",
                           "device.1.name NVIDIA H200",
                           "device.1.compute 10.0",
                           "device.1.sms 132",
                           "device.1.memory_bytes 150110011392",
                           "device.1.persistence on",
                           "device.1.peers 0",
                           "device.1.handle.fd ok",
                           "device.1.handle.fabric ok"}) {
    TakeDeviceLine(line, facts);
  }
  return facts;
}

Finding Check(const DeviceFacts& facts, const std::string& name, int32_t ranks = 2) {
  for (const Finding& finding : CheckDevices(facts, ranks)) {
    if (finding.name == name) return finding;
  }
  return {.name = "none"};
}

// The same with one fact changed.
Finding CheckWith(const char* line, const std::string& name, int32_t ranks = 2) {
  DeviceFacts facts = Healthy();
  TakeDeviceLine(line, facts);
  return Check(facts, name, ranks);
}

void ExpectState(const Finding& finding, FindingState state, const char* found,
                 const char* remedy) {
  EXPECT_EQ(finding.state, state) << finding.name << ": " << finding.found;
  EXPECT_THAT(finding.found, HasSubstr(found));
  EXPECT_THAT(finding.remedy, HasSubstr(remedy));
}

TEST(DeviceChecksTest, HealthyDevicesAreOk) {
  const std::vector<Finding> findings = CheckDevices(Healthy(), 2);
  EXPECT_EQ(findings.size(), 12u);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.state, FindingState::kOk) << finding.name << ": " << finding.found;
  }
  EXPECT_EQ(Check(Healthy(), "cuda_device_0").found,
            "NVIDIA H200, compute capability 9.0, 132 SMs, 139.80 GiB, 18 NVLinks up");
}

TEST(DeviceChecksTest, AWorkerThatTellsNothingIsAllThatIsSaid) {
  DeviceFacts facts;
  facts.problem = "perigee-worker had not described this machine's devices within 30s";
  const std::vector<Finding> findings = CheckDevices(facts, 1);
  ASSERT_EQ(findings.size(), 1u);
  ExpectState(findings[0], FindingState::kFail, "within 30s", "--describe_devices=true");
}

TEST(DeviceChecksTest, TheDriverRunsTheCudaOfTheBuild) {
  ExpectState(CheckWith("driver_cuda 0", "cuda_driver"), FindingState::kFail, "no driver",
              "install the NVIDIA driver");
  ExpectState(CheckWith("driver_cuda 12090", "cuda_driver"), FindingState::kFail, "for CUDA 12.9",
              "a driver for CUDA 13.0");
  ExpectState(CheckWith("runtime_cuda 13020", "cuda_driver"), FindingState::kWarn,
              "built with CUDA 13.2", "a driver for CUDA 13.2");
  EXPECT_EQ(CheckWith("driver_cuda 14000", "cuda_driver").state, FindingState::kOk);
  ExpectState(CheckWith("built_with_cuda no", "cuda_driver"), FindingState::kFail,
              "built without CUDA", "--config=cuda");
}

TEST(DeviceChecksTest, EveryWorkerGetsADevice) {
  ExpectState(Check(Healthy(), "cuda_devices", 3), FindingState::kFail,
              "2 CUDA devices for 3 workers", "--ranks 2");
  EXPECT_EQ(Check(Healthy(), "cuda_devices", 1).state, FindingState::kOk);
  DeviceFacts none = Healthy();
  TakeDeviceLine("devices 0", none);
  TakeDeviceLine("problem the driver sees no device", none);
  ExpectState(Check(none, "cuda_devices"), FindingState::kFail,
              "no CUDA device: the driver sees no device", "CUDA_VISIBLE_DEVICES");
  for (const char* name : {"memory_handle_fd", "persistence", "mps", "peer_access"}) {
    EXPECT_EQ(Check(none, name).name, "none");
  }
}

TEST(DeviceChecksTest, OldDevicesFail) {
  ExpectState(CheckWith("device.0.compute 8.9", "cuda_device_0"), FindingState::kFail,
              "compute capability 8.9", "without GPU-1");
}

TEST(DeviceChecksTest, DescriptorsAreNeededAndFabricIsNot) {
  ExpectState(CheckWith("device.1.handle.fd out of memory", "memory_handle_fd"),
              FindingState::kFail, "device 1: out of memory", "nvidia-smi");
  ExpectState(CheckWith("device.1.handle.fabric not permitted", "memory_handle_fabric"),
              FindingState::kOk, "auto takes fd (device 1: not permitted)", "");
  DeviceFacts cut = Healthy();
  cut.told.erase("device.0.handle.fd");
  ExpectState(Check(cut, "memory_handle_fd"), FindingState::kFail, "device 0: not known", "");
}

TEST(DeviceChecksTest, EveryDeviceReachesEveryOther) {
  DeviceFacts facts = Healthy();
  TakeDeviceLine("device.1.peers none", facts);
  ExpectState(Check(facts, "peer_access"), FindingState::kFail,
              "1 pair of devices without access: 1 to 0", "nvidia-smi topo");
  facts.told.erase("device.1.peers");
  ExpectState(Check(facts, "peer_access"), FindingState::kFail, "device 1: not known", "");
  TakeDeviceLine("devices 1", facts);
  EXPECT_EQ(Check(facts, "peer_access").name, "none") << "one device has no peer";
}

TEST(DeviceChecksTest, PersistenceIsBetterOn) {
  ExpectState(CheckWith("device.0.persistence off", "persistence"), FindingState::kWarn,
              "device 0: off", "nvidia-smi -pm 1");
  DeviceFacts facts = Healthy();
  facts.told.erase("device.1.persistence");
  ExpectState(Check(facts, "persistence"), FindingState::kWarn, "device 1: not known", "");
}

TEST(DeviceChecksTest, MpsIsARisk) {
  DeviceFacts facts = Healthy();
  facts.mps_pipe = "/tmp/nvidia-mps/control";
  ExpectState(Check(facts, "mps"), FindingState::kWarn, "/tmp/nvidia-mps/control",
              "nvidia-cuda-mps-control");
}

TEST(DeviceChecksTest, LibrariesMayBeMissing) {
  DeviceFacts facts = Healthy();
  facts.told.erase("driver");
  facts.told.erase("nccl");
  TakeDeviceLine("nvml_problem no libnvidia-ml.so.1", facts);
  ExpectState(Check(facts, "nvml"), FindingState::kWarn, "not found: no libnvidia-ml.so.1",
              "utility");
  ExpectState(Check(facts, "nccl"), FindingState::kOk, "not found", "");
  EXPECT_EQ(Check(facts, "cuda_driver").found, "driver for CUDA 13.0; built with CUDA 13.0");
}

}  // namespace
}  // namespace perigee
