#include "client/cli/doctor/machine_facts.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace perigee {
namespace {

void ReadMeminfo(MachineFacts& facts) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    uint64_t kibibytes = 0;
    if (!(words >> key >> kibibytes)) continue;
    if (key == "MemTotal:") facts.total_bytes = kibibytes << 10;
    if (key == "MemAvailable:") facts.available_bytes = kibibytes << 10;
  }
}

absl::optional<uint64_t> Limit(rlim_t limit) {
  if (limit == RLIM_INFINITY) return absl::nullopt;
  return limit;
}

int RunnableCpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));  // more than fit into a cpu_set_t
}

}  // namespace

MachineFacts GatherMachineFacts() {
  MachineFacts facts;
  ReadMeminfo(facts);
  facts.group = ReadControlGroupLimits();
  struct statvfs shm;
  if (statvfs("/dev/shm", &shm) == 0) {
    const uint64_t unit = shm.f_frsize;
    facts.shm = SharedMemoryFolder{shm.f_blocks * unit, shm.f_bavail * unit};
  }
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.descriptors = Limit(limit.rlim_cur);
    facts.most_descriptors = Limit(limit.rlim_max);
  }
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) facts.locked_bytes = Limit(limit.rlim_cur);
  facts.cpus = RunnableCpus();
  return facts;
}

}  // namespace perigee
