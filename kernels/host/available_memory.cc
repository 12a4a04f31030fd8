#include "kernels/host/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace perigee {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The number in a file of one word; "max", a missing file or anything else: unlimited.
uint64_t ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  uint64_t number = 0;
  return file >> word && absl::SimpleAtoi(word, &number) ? number : kUnlimited;
}

HostMemory ReadMeminfo(const std::string& path) {
  HostMemory memory{kUnlimited, kUnlimited};
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string key;
    uint64_t kibibytes = 0;
    if (!(words >> key >> kibibytes)) continue;
    if (key == "MemTotal:") memory.total_bytes = kibibytes << 10;
    if (key == "MemAvailable:") memory.available_bytes = kibibytes << 10;
  }
  return memory;
}

void Limit(HostMemory& memory, uint64_t limit_bytes, uint64_t used_bytes) {
  if (limit_bytes == kUnlimited) return;
  memory.total_bytes = std::min(memory.total_bytes, limit_bytes);
  if (used_bytes == kUnlimited) used_bytes = 0;
  memory.available_bytes =
      std::min(memory.available_bytes, limit_bytes - std::min(limit_bytes, used_bytes));
}

// The group folders that this process is in, below the mount, by lines "id:controllers:/path".
struct OwnGroups {
  std::string unified;  // version 2
  std::string memory;   // version 1
};

OwnGroups ReadOwnGroups(const std::string& path) {
  OwnGroups groups;
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    if (fields[0] == "0" && fields[1].empty()) groups.unified = fields[2];
    for (const std::string& controller : std::vector<std::string>(absl::StrSplit(fields[1], ','))) {
      if (controller == "memory") groups.memory = fields[2];
    }
  }
  return groups;
}

// Every group from `group` up to the mount itself: a parent's limit holds for its children. In a
// container the mount is often the own group, and its path names nothing below it: then only the
// mount has files.
void LimitByGroups(HostMemory& memory, const std::string& mount, std::string group,
                   const std::string& limit_file, const std::string& usage_file) {
  while (true) {
    const std::string folder = absl::StrCat(mount, group == "/" ? "" : group, "/");
    Limit(memory, ReadNumber(folder + limit_file), ReadNumber(folder + usage_file));
    const size_t slash = group.rfind('/');
    if (group.empty() || slash == std::string::npos) return;
    group.resize(slash);
  }
}

}  // namespace

HostMemory ReadHostMemory(const HostMemoryPaths& paths) {
  HostMemory memory = ReadMeminfo(paths.proc + "/meminfo");
  const OwnGroups groups = ReadOwnGroups(paths.proc + "/self/cgroup");
  LimitByGroups(memory, paths.cgroup, groups.unified, "memory.max", "memory.current");
  LimitByGroups(memory, paths.cgroup + "/memory", groups.memory, "memory.limit_in_bytes",
                "memory.usage_in_bytes");
  return memory;
}

}  // namespace perigee
