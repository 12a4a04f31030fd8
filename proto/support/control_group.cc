#include "proto/support/control_group.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace perigee {
namespace {

// Version 1 writes "no limit" as the largest number of whole pages.
constexpr uint64_t kNoLimit = uint64_t{1} << 62;

// The first words of a file; a missing one has none.
std::vector<std::string> Words(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> words;
  for (std::string word; file >> word;) words.push_back(word);
  return words;
}

absl::optional<uint64_t> Number(const std::string& path) {
  const std::vector<std::string> words = Words(path);
  uint64_t number = 0;
  if (words.empty() || !absl::SimpleAtoi(words[0], &number) || number >= kNoLimit) {
    return absl::nullopt;
  }
  return number;
}

template <typename T>
void Tighten(absl::optional<T>& limit, T other) {
  limit = limit ? std::min(*limit, other) : other;
}

void LimitMemory(ControlGroupLimits& limits, const std::string& limit_path,
                 const std::string& usage_path) {
  const absl::optional<uint64_t> limit = Number(limit_path);
  if (!limit) return;
  Tighten(limits.memory_bytes, *limit);
  Tighten(limits.free_bytes, *limit - std::min(*limit, Number(usage_path).value_or(0)));
}

void LimitCpus(ControlGroupLimits& limits, const std::string& quota, const std::string& period) {
  double time = 0;
  double of = 0;
  if (!absl::SimpleAtod(quota, &time) || !absl::SimpleAtod(period, &of)) return;
  if (time > 0 && of > 0) Tighten(limits.cpus, time / of);
}

std::string FirstWord(const std::string& path) {
  const std::vector<std::string> words = Words(path);
  return words.empty() ? "" : words[0];
}

// The own group of a controller ("" is version 2) by lines "id:controllers:/path".
std::string OwnGroup(const std::string& path, const std::string& controller) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> names = absl::StrSplit(fields[1], ',');
    if (std::find(names.begin(), names.end(), controller) != names.end()) return fields[2];
  }
  return "";
}

// The folders of a group and of all above it, up to the mount: in a container that is often the own
// group, and the path names nothing below it.
std::vector<std::string> Folders(const std::string& mount, std::string group) {
  std::vector<std::string> folders;
  while (true) {
    folders.push_back(absl::StrCat(mount, group == "/" ? "" : group, "/"));
    const size_t slash = group.rfind('/');
    if (group.empty() || slash == std::string::npos) return folders;
    group.resize(slash);
  }
}

}  // namespace

ControlGroupLimits ReadControlGroupLimits(const std::string& proc, const std::string& cgroup) {
  ControlGroupLimits limits;
  const std::string groups = proc + "/self/cgroup";
  for (const std::string& folder : Folders(cgroup, OwnGroup(groups, ""))) {
    LimitMemory(limits, folder + "memory.max", folder + "memory.current");
    const std::vector<std::string> cpu = Words(folder + "cpu.max");
    if (cpu.size() == 2) LimitCpus(limits, cpu[0], cpu[1]);
  }
  for (const std::string& folder : Folders(cgroup + "/memory", OwnGroup(groups, "memory"))) {
    LimitMemory(limits, folder + "memory.limit_in_bytes", folder + "memory.usage_in_bytes");
  }
  for (const std::string& folder : Folders(cgroup + "/cpu", OwnGroup(groups, "cpu"))) {
    LimitCpus(limits, FirstWord(folder + "cpu.cfs_quota_us"),
              FirstWord(folder + "cpu.cfs_period_us"));
  }
  return limits;
}

int UsableCpus(const ControlGroupLimits& limits) {
  cpu_set_t allowed;
  // More CPUs than the set has room for: the call fails.
  int cpus = sched_getaffinity(0, sizeof(allowed), &allowed) == 0
                 ? CPU_COUNT(&allowed)
                 : static_cast<int>(std::thread::hardware_concurrency());
  if (limits.cpus) cpus = std::min(cpus, static_cast<int>(std::min(*limits.cpus, 1e6)));
  return std::max(cpus, 1);
}

}  // namespace perigee
