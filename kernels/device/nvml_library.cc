#include "kernels/device/nvml_library.h"

#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/device/shared_library.h"

namespace perigee {

// As nvml.h declares them; there is no nvml.h where binaries are built. nvmlReturn_t is a C enum.
struct NvmlFunctions {
  struct Device;  // what nvmlDevice_t points to
  struct MemoryInfo {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
  };

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int result) = nullptr;
  int (*driver_version)(char* text, unsigned int length) = nullptr;
  int (*device_count)(unsigned int* count) = nullptr;
  int (*device_by_index)(unsigned int index, Device** device) = nullptr;
  int (*device_name)(Device* device, char* text, unsigned int length) = nullptr;
  int (*device_uuid)(Device* device, char* text, unsigned int length) = nullptr;
  int (*device_memory)(Device* device, MemoryInfo* info) = nullptr;
  int (*nvlink_state)(Device* device, unsigned int link, int* is_active) = nullptr;
  int (*persistence_mode)(Device* device, int* is_on) = nullptr;
  // nvmlFieldValue_t; NVML fills in all but which field it is of.
  struct FieldValue {
    unsigned int field = 0;
    unsigned int scope = 0;
    long long timestamp = 0;
    long long latency_us = 0;
    int value_type = 0;
    int result = 0;
    unsigned long long value = 0;  // a union: the lower half of what is an unsigned int
  };
  int (*field_values)(Device* device, int count, FieldValue* values) = nullptr;
};
static_assert(sizeof(NvmlFunctions::FieldValue) == 40);

namespace {

constexpr int kSuccess = 0;
constexpr unsigned int kMostLinks = 64;          // far more than any device has
constexpr unsigned int kCommonNvlinkSpeed = 90;  // NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON
// No text that is asked for here is longer (nvml.h: 96 bytes for names and UUIDs).
using Text = std::array<char, 128>;

absl::Status Resolve(const SharedLibrary& library, NvmlFunctions& functions) {
  absl::Status status = library.Find("nvmlInit_v2", &functions.init);
  if (status.ok()) status = library.Find("nvmlShutdown", &functions.shutdown);
  if (status.ok()) status = library.Find("nvmlErrorString", &functions.error_string);
  if (status.ok()) status = library.Find("nvmlSystemGetDriverVersion", &functions.driver_version);
  if (status.ok()) status = library.Find("nvmlDeviceGetCount_v2", &functions.device_count);
  if (status.ok()) {
    status = library.Find("nvmlDeviceGetHandleByIndex_v2", &functions.device_by_index);
  }
  if (status.ok()) status = library.Find("nvmlDeviceGetName", &functions.device_name);
  if (status.ok()) status = library.Find("nvmlDeviceGetUUID", &functions.device_uuid);
  if (status.ok()) status = library.Find("nvmlDeviceGetMemoryInfo", &functions.device_memory);
  if (status.ok()) status = library.Find("nvmlDeviceGetNvLinkState", &functions.nvlink_state);
  if (status.ok()) {
    status = library.Find("nvmlDeviceGetPersistenceMode", &functions.persistence_mode);
  }
  if (status.ok()) status = library.Find("nvmlDeviceGetFieldValues", &functions.field_values);
  return status;
}

absl::Status NvmlStatus(const NvmlFunctions& functions, int result, absl::string_view doing) {
  if (result == kSuccess) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(doing, ": ", functions.error_string(result), " (", result, ")"));
}

// The first number that is no link, and a device that has none, are errors: there the count ends.
int CountNvlinks(const NvmlFunctions& functions, NvmlFunctions::Device* device) {
  int up = 0;
  int is_active = 0;
  for (unsigned int link = 0; link < kMostLinks; ++link) {
    if (functions.nvlink_state(device, link, &is_active) != kSuccess) break;
    if (is_active != 0) ++up;
  }
  return up;
}

int ReadNvlinkSpeed(const NvmlFunctions& functions, NvmlFunctions::Device* device) {
  NvmlFunctions::FieldValue speed;
  speed.field = kCommonNvlinkSpeed;
  if (functions.field_values(device, 1, &speed) != kSuccess || speed.result != kSuccess) return 0;
  return static_cast<int>(speed.value & 0x7fffffff);
}

absl::optional<bool> ReadPersistence(const NvmlFunctions& functions,
                                     NvmlFunctions::Device* device) {
  int is_on = 0;
  if (functions.persistence_mode(device, &is_on) != kSuccess) return absl::nullopt;
  return is_on != 0;
}

absl::StatusOr<NvmlDevice> ReadDevice(const NvmlFunctions& functions, unsigned int index) {
  NvmlFunctions::Device* device = nullptr;
  Text name = {};
  Text uuid = {};
  NvmlFunctions::MemoryInfo memory = {};
  int result = functions.device_by_index(index, &device);
  if (result == kSuccess) result = functions.device_name(device, name.data(), name.size());
  if (result == kSuccess) result = functions.device_uuid(device, uuid.data(), uuid.size());
  if (result == kSuccess) result = functions.device_memory(device, &memory);
  absl::Status status =
      NvmlStatus(functions, result, absl::StrCat("asking NVML for device ", index));
  if (!status.ok()) return status;
  return NvmlDevice{name.data(),
                    uuid.data(),
                    memory.total,
                    memory.used,
                    memory.free,
                    CountNvlinks(functions, device),
                    ReadPersistence(functions, device),
                    ReadNvlinkSpeed(functions, device)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<NvmlLibrary>> NvmlLibrary::Open(const std::string& name) {
  const absl::StatusOr<SharedLibrary> library = SharedLibrary::Open(name);
  if (!library.ok()) return library.status();
  auto functions = std::make_unique<NvmlFunctions>();
  if (absl::Status status = Resolve(*library, *functions); !status.ok()) return status;
  absl::Status status = NvmlStatus(*functions, functions->init(), "nvmlInit");
  if (!status.ok()) return status;
  return std::unique_ptr<NvmlLibrary>(new NvmlLibrary(std::move(functions)));
}

NvmlLibrary::NvmlLibrary(std::unique_ptr<NvmlFunctions> functions)
    : functions_(std::move(functions)) {}

// NVML counts its starts; other owners are not disturbed.
NvmlLibrary::~NvmlLibrary() { functions_->shutdown(); }

absl::StatusOr<std::string> NvmlLibrary::DriverVersion() const {
  Text text = {};
  absl::Status status = NvmlStatus(
      *functions_, functions_->driver_version(text.data(), text.size()), "asking for the driver");
  if (!status.ok()) return status;
  return std::string(text.data());
}

absl::StatusOr<std::vector<NvmlDevice>> NvmlLibrary::Devices() const {
  unsigned int count = 0;
  absl::Status status =
      NvmlStatus(*functions_, functions_->device_count(&count), "asking for the devices");
  if (!status.ok()) return status;
  std::vector<NvmlDevice> devices;
  for (unsigned int index = 0; index < count; ++index) {
    absl::StatusOr<NvmlDevice> device = ReadDevice(*functions_, index);
    if (!device.ok()) return device.status();
    devices.push_back(*std::move(device));
  }
  return devices;
}

}  // namespace perigee
