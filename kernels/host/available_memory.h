// How much memory this process may still take: the machine's, and its control group's where that is
// less.
#ifndef PERIGEE_KERNELS_HOST_AVAILABLE_MEMORY_H_
#define PERIGEE_KERNELS_HOST_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string>

namespace perigee {

struct HostMemory {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;
};

// Folders to read from, for tests; the files missing in them count as "no limit".
struct HostMemoryPaths {
  std::string proc = "/proc";
  std::string cgroup = "/sys/fs/cgroup";
};

// Reads /proc/meminfo and the limits of control groups (versions 1 and 2) from this process's own
// group up. Never fails: what cannot be read does not limit.
HostMemory ReadHostMemory(const HostMemoryPaths& paths = {});

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_AVAILABLE_MEMORY_H_
