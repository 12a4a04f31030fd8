#include "worker/device_description.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/device/handle_kinds.h"
#include "kernels/device/nccl_library.h"
#include "kernels/device/peer_access.h"

namespace perigee {
namespace {

// On one line, whatever a library says.
std::string Words(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\n", " "}, {"\r", " "}});
}

std::string OkOrWhy(const absl::Status& status) {
  return status.ok() ? "ok" : Words(status.message());
}

std::vector<std::string> ReadNvml(const CudaDevices& devices) {
  const auto nvml = NvmlLibrary::Open();
  if (!nvml.ok()) return {absl::StrCat("nvml_problem ", Words(nvml.status().message()))};
  std::vector<std::string> lines;
  const auto version = (*nvml)->DriverVersion();
  lines.push_back(version.ok() ? absl::StrCat("driver ", *version)
                               : absl::StrCat("nvml_problem ", Words(version.status().message())));
  const auto found = (*nvml)->Devices();
  if (!found.ok()) return lines;
  for (std::string& line : NvmlLines(devices, *found)) lines.push_back(std::move(line));
  return lines;
}

std::string ReadNccl() {
  const auto nccl = NcclLibrary::Open();
  return nccl.ok() ? absl::StrCat("nccl ", (*nccl)->version_text())
                   : absl::StrCat("nccl_problem ", Words(nccl.status().message()));
}

std::string ReadPeers(int device, int devices) {
  std::string peers;
  for (int peer = 0; peer < devices; ++peer) {
    if (peer != device && CanAccessPeer(device, peer).value_or(false)) {
      absl::StrAppend(&peers, " ", peer);
    }
  }
  return absl::StrCat("device.", device, ".peers", peers.empty() ? " none" : peers);
}

}  // namespace

std::vector<std::string> DeviceLines(const CudaDevices& devices) {
  std::vector<std::string> lines = {
      absl::StrCat("built_with_cuda ", devices.built_with_cuda ? "yes" : "no"),
      absl::StrCat("driver_cuda ", devices.driver_version),
      absl::StrCat("runtime_cuda ", devices.runtime_version)};
  if (!devices.problem.empty()) lines.push_back(absl::StrCat("problem ", Words(devices.problem)));
  lines.push_back(absl::StrCat("devices ", devices.devices.size()));
  for (size_t index = 0; index < devices.devices.size(); ++index) {
    const CudaDevice& device = devices.devices[index];
    const std::string key = absl::StrCat("device.", index, ".");
    lines.push_back(absl::StrCat(key, "name ", device.name));
    lines.push_back(absl::StrCat(key, "compute ", device.compute_major, ".", device.compute_minor));
    lines.push_back(absl::StrCat(key, "sms ", device.multiprocessors));
    lines.push_back(absl::StrCat(key, "memory_bytes ", device.memory_bytes));
    lines.push_back(absl::StrCat(key, "pci ", device.pci_bus_id));
    lines.push_back(absl::StrCat(key, "uuid ", device.uuid));
  }
  return lines;
}

std::vector<std::string> NvmlLines(const CudaDevices& devices,
                                   const std::vector<NvmlDevice>& nvml_devices) {
  std::vector<std::string> lines;
  for (size_t index = 0; index < devices.devices.size(); ++index) {
    const auto found = std::find_if(
        nvml_devices.begin(), nvml_devices.end(),
        [&](const NvmlDevice& device) { return device.uuid == devices.devices[index].uuid; });
    if (found == nvml_devices.end()) continue;
    const std::string key = absl::StrCat("device.", index, ".");
    lines.push_back(absl::StrCat(key, "nvlinks ", found->nvlinks));
    if (found->persistence) {
      lines.push_back(absl::StrCat(key, "persistence ", *found->persistence ? "on" : "off"));
    }
  }
  return lines;
}

std::vector<std::string> HandleLines(int device, const HandleKinds& kinds) {
  const std::string key = absl::StrCat("device.", device, ".handle.");
  return {absl::StrCat(key, HandleKindName(HandleKind::kPosixFd), " ", OkOrWhy(kinds.posix_fd)),
          absl::StrCat(key, HandleKindName(HandleKind::kFabric), " ", OkOrWhy(kinds.fabric))};
}

void DescribeDevices(const std::function<void(const std::string& line)>& say) {
  const auto say_all = [&](const std::vector<std::string>& lines) {
    for (const std::string& line : lines) say(line);
  };
  const CudaDevices devices = QueryCudaDevices();
  const int count = static_cast<int>(devices.devices.size());
  say_all(DeviceLines(devices));
  say_all(ReadNvml(devices));
  say(ReadNccl());
  if (count > 1) {
    for (int device = 0; device < count; ++device) say(ReadPeers(device, count));
  }
  for (int device = 0; device < count; ++device) {
    say_all(HandleLines(device, ProbeHandleKinds(device)));
  }
}

}  // namespace perigee
