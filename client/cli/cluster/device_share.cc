#include "client/cli/cluster/device_share.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace perigee {
namespace {

std::string Names(const std::vector<ListedDevice>& devices) {
  return absl::StrJoin(devices, ", ", [](std::string* out, const ListedDevice& device) {
    absl::StrAppend(out, device.name);
  });
}

absl::Status NoList(const std::string& line) {
  return absl::FailedPreconditionError(
      absl::StrCat("perigee-worker answered '", line, "', expected a list of devices"));
}

}  // namespace

absl::StatusOr<std::vector<ListedDevice>> ParseDeviceList(const std::vector<std::string>& lines) {
  std::vector<ListedDevice> devices;
  for (const std::string& line : lines) {
    // device INDEX sms SMS name NAME, where a name has blanks.
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 5));
    ListedDevice device;
    if (words.size() != 6 || words[0] != "device" || words[1] != absl::StrCat(devices.size()) ||
        words[2] != "sms" || !absl::SimpleAtoi(words[3], &device.sms) || words[4] != "name") {
      return NoList(line);
    }
    device.name = words[5];
    devices.push_back(std::move(device));
  }
  if (devices.empty()) return NoList("");
  return devices;
}

absl::StatusOr<int32_t> SmsOfWorker(const std::vector<ListedDevice>& devices, int32_t ranks,
                                    bool shared_gpu) {
  if (!shared_gpu) {
    if (static_cast<size_t>(ranks) <= devices.size()) return 0;
    return absl::InvalidArgumentError(
        absl::StrCat("backend cuda: ", ranks, " workers need a device each, and this machine has ",
                     devices.size(), " (", Names(devices),
                     "); --shared-gpu puts them all on the first, for tests"));
  }
  const int32_t sms = devices.front().sms / ranks;
  if (sms > 0) return sms;
  return absl::InvalidArgumentError(absl::StrCat("backend cuda: ", ranks,
                                                 " workers cannot share the ", devices.front().sms,
                                                 " SMs of ", devices.front().name));
}

}  // namespace perigee
