#include "client/cli/doctor/device_checks.h"

#include <algorithm>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/output.h"

namespace perigee {
namespace {

// Kernels are built for this compute capability and up.
constexpr int kComputeMajor = 9;

int Number(const std::string& text) {
  int number = 0;
  return absl::SimpleAtoi(text, &number) ? number : 0;
}

// 13020 as "13.2".
std::string Version(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

Finding CheckDescription(const DeviceFacts& facts) {
  return Judge(facts.problem.empty(), FindingState::kFail,
               {.name = "device_description",
                .found = facts.problem.empty() ? "perigee-worker --describe_devices answered"
                                               : facts.problem,
                .expected = "an answer from perigee-worker",
                .remedy = "see what it says: perigee-worker --describe_devices=true; a driver that "
                          "hangs shows in dmesg"});
}

Finding CheckDriver(const DeviceFacts& facts) {
  Finding finding = {.name = "cuda_driver", .expected = "a driver for the CUDA it is built with"};
  if (facts.Told("built_with_cuda") == "no") {
    finding.found = "this perigee-worker was built without CUDA";
    finding.remedy =
        "build where the CUDA toolkit is installed: bazel build --config=cuda "
        "//worker:perigee-worker";
    return Judge(false, FindingState::kFail, std::move(finding));
  }
  const int driver = Number(facts.Told("driver_cuda"));
  const int runtime = Number(facts.Told("runtime_cuda"));
  const std::string package = facts.Told("driver");
  finding.found = driver == 0
                      ? "no driver"
                      : absl::StrCat("driver ", package.empty() ? "" : package + " ", "for CUDA ",
                                     Version(driver), "; built with CUDA ", Version(runtime));
  finding.remedy = driver == 0 ? "install the NVIDIA driver (nvidia-smi tells); in a container: "
                                 "docker run --gpus all"
                               : absl::StrCat("install a driver for CUDA ", Version(runtime),
                                              " or later (nvidia-smi tells)");
  // Within a major version an older driver runs what a newer toolkit built.
  const bool runs = driver > 0 && driver / 1000 >= runtime / 1000;
  return Judge(driver > 0 && driver >= runtime, runs ? FindingState::kWarn : FindingState::kFail,
               std::move(finding));
}

Finding CheckCount(const DeviceFacts& facts, int32_t ranks) {
  const int32_t devices = facts.devices();
  Finding finding = {.name = "cuda_devices",
                     .found = absl::StrCat(devices, " CUDA devices for ", WorkersText(ranks)),
                     .expected = "one for each worker",
                     .remedy = absl::StrCat("perigee up --ranks ", std::max(devices, 1),
                                            " --backend cuda; --shared-gpu puts all workers on "
                                            "the first device, for tests")};
  if (devices == 0) {
    const std::string why = facts.Told("problem");
    finding.found = absl::StrCat("no CUDA device", why.empty() ? "" : ": " + why);
    finding.remedy =
        "look at nvidia-smi and CUDA_VISIBLE_DEVICES; in a container: docker run --gpus all";
  }
  return Judge(devices > 0 && devices >= ranks, FindingState::kFail, std::move(finding));
}

Finding CheckDevice(const DeviceFacts& facts, int32_t device) {
  const std::string compute = facts.Of(device, "compute");
  const std::string uuid = facts.Of(device, "uuid");
  const std::string links = facts.Of(device, "nvlinks");
  int64_t bytes = 0;
  (void)absl::SimpleAtoi(facts.Of(device, "memory_bytes"), &bytes);
  return Judge(Number(compute.substr(0, compute.find('.'))) >= kComputeMajor, FindingState::kFail,
               {.name = absl::StrCat("cuda_device_", device),
                .found = absl::StrCat(facts.Of(device, "name"), ", compute capability ", compute,
                                      ", ", facts.Of(device, "sms"), " SMs, ", FormatBytes(bytes),
                                      links.empty() ? "" : ", " + links + " NVLinks up"),
                .expected = absl::StrCat("compute capability ", kComputeMajor, ".0 or above"),
                .remedy = absl::StrCat("leave it out: export CUDA_VISIBLE_DEVICES without ",
                                       uuid.empty() ? absl::StrCat(device) : uuid)});
}

// Devices for which `key` is known and not `wanted`, each with what it is instead.
std::vector<std::string> Otherwise(const DeviceFacts& facts, const std::string& key,
                                   const std::string& wanted) {
  std::vector<std::string> others;
  for (int32_t device = 0; device < facts.devices(); ++device) {
    const std::string value = facts.Of(device, key);
    if (value == wanted) continue;
    others.push_back(absl::StrCat("device ", device, ": ", value.empty() ? "not known" : value));
  }
  return others;
}

Finding CheckDescriptorHandles(const DeviceFacts& facts) {
  const auto refused = Otherwise(facts, "handle.fd", "ok");
  return Judge(refused.empty(), FindingState::kFail,
               {.name = "memory_handle_fd",
                .found = refused.empty() ? "device memory was exported as a descriptor"
                                         : absl::StrJoin(refused, "; "),
                .expected = "device memory that other processes can map, on every device",
                .remedy = "free what holds the devices (nvidia-smi), and run on bare metal or with "
                          "a virtual GPU that has virtual memory management"});
}

// On one host nothing needs it.
Finding CheckFabricHandles(const DeviceFacts& facts) {
  const auto refused = Otherwise(facts, "handle.fabric", "ok");
  return {.name = "memory_handle_fabric",
          .found = refused.empty() ? "fabric handles are granted"
                                   : absl::StrCat("not granted, --memory-handle auto takes fd (",
                                                  refused.front(), ")"),
          .expected = "either: --memory-handle fabric needs them, auto and fd do not"};
}

// The ordered pairs that have no access, "0 to 1".
std::vector<std::string> PairsWithoutAccess(const DeviceFacts& facts) {
  std::vector<std::string> pairs;
  for (int32_t device = 0; device < facts.devices(); ++device) {
    const std::vector<std::string> peers =
        absl::StrSplit(facts.Of(device, "peers"), ' ', absl::SkipEmpty());
    for (int32_t peer = 0; peer < facts.devices(); ++peer) {
      const bool has = std::find(peers.begin(), peers.end(), absl::StrCat(peer)) != peers.end();
      if (peer != device && !has) pairs.push_back(absl::StrCat(device, " to ", peer));
    }
  }
  return pairs;
}

std::string DescribePeers(const DeviceFacts& facts) {
  for (int32_t device = 0; device < facts.devices(); ++device) {
    if (facts.Of(device, "peers").empty()) return absl::StrCat("device ", device, ": not known");
  }
  std::vector<std::string> pairs = PairsWithoutAccess(facts);
  if (pairs.empty()) return "every device reaches every other";
  const size_t count = pairs.size();
  if (count > 4) pairs.resize(4);
  return absl::StrCat(count, count == 1 ? " pair" : " pairs",
                      " of devices without access: ", absl::StrJoin(pairs, ", "),
                      count > 4 ? ", ..." : "");
}

Finding CheckPeerAccess(const DeviceFacts& facts) {
  return Judge(PairsWithoutAccess(facts).empty(), FindingState::kFail,
               {.name = "peer_access",
                .found = DescribePeers(facts),
                .expected = "peer access between all devices that workers get",
                .remedy = "see nvidia-smi topo -p2p rw; start the fabric manager (systemctl start "
                          "nvidia-fabricmanager), or export CUDA_VISIBLE_DEVICES with devices "
                          "that have it"});
}

Finding CheckPersistence(const DeviceFacts& facts) {
  const auto others = Otherwise(facts, "persistence", "on");
  return Judge(others.empty(), FindingState::kWarn,
               {.name = "persistence",
                .found = others.empty() ? "on" : absl::StrJoin(others, "; "),
                .expected = "on: else the driver leaves the device with its last user, and a "
                            "worker's start takes seconds",
                .remedy = "nvidia-smi -pm 1 as root, or systemctl start nvidia-persistenced"});
}

Finding CheckMps(const DeviceFacts& facts) {
  const bool off = facts.mps_pipe.empty();
  return Judge(off, FindingState::kWarn,
               {.name = "mps",
                .found = off ? "no MPS control daemon"
                             : absl::StrCat(facts.mps_pipe, " is there: an MPS control daemon"),
                .expected = "none: under MPS a killed worker faults the others on its GPU",
                .remedy = "echo quit | nvidia-cuda-mps-control (docs/operations.md); keep it only "
                          "for workers that share a GPU in tests"});
}

// A library that the worker opens where it is.
Finding CheckLibrary(const DeviceFacts& facts, const std::string& key, const std::string& problem,
                     FindingState otherwise, const char* expected, const char* remedy) {
  const std::string version = facts.Told(key);
  // The first place that was looked at stands for the others.
  const std::string why = facts.Told(problem).substr(0, facts.Told(problem).find(';'));
  return Judge(!version.empty(), otherwise,
               {.name = key == "driver" ? "nvml" : key,
                .found = version.empty() ? absl::StrCat("not found", why.empty() ? "" : ": " + why)
                                         : version,
                .expected = expected,
                .remedy = remedy});
}

}  // namespace

std::vector<Finding> CheckDevices(const DeviceFacts& facts, int32_t ranks) {
  std::vector<Finding> findings = {CheckDescription(facts)};
  if (facts.told.empty()) return findings;
  findings.push_back(CheckDriver(facts));
  findings.push_back(CheckCount(facts, ranks));
  const int32_t devices = facts.devices();
  for (int32_t device = 0; device < devices; ++device) {
    findings.push_back(CheckDevice(facts, device));
  }
  if (devices > 0) {
    findings.push_back(CheckDescriptorHandles(facts));
    findings.push_back(CheckFabricHandles(facts));
    if (devices > 1) findings.push_back(CheckPeerAccess(facts));
    findings.push_back(CheckPersistence(facts));
    findings.push_back(CheckMps(facts));
  }
  findings.push_back(CheckLibrary(
      facts, "driver", "nvml_problem", FindingState::kWarn,
      "libnvidia-ml.so.1: NVLinks and persistence are known through it",
      "install the driver's management library; in a container: NVIDIA_DRIVER_CAPABILITIES with "
      "utility"));
  findings.push_back(CheckLibrary(facts, "nccl", "nccl_problem", FindingState::kOk,
                                  "any or none: only groups of transport nccl need it", ""));
  return findings;
}

}  // namespace perigee
