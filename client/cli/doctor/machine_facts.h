// Memory, CPUs and limits that this process, and so workers started from the same place, have.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_MACHINE_FACTS_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_MACHINE_FACTS_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "proto/support/control_group.h"

namespace perigee {

struct SharedMemoryFolder {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
};

struct MachineFacts {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;  // without swapping, by /proc/meminfo
  ControlGroupLimits group;
  absl::optional<SharedMemoryFolder> shm;  // /dev/shm; none: nothing is mounted there
  // RLIMIT_NOFILE and RLIMIT_MEMLOCK; nullopt: no limit.
  absl::optional<uint64_t> descriptors;
  absl::optional<uint64_t> most_descriptors;  // that a process may raise it to
  absl::optional<uint64_t> locked_bytes;
  int cpus = 0;  // that the scheduler lets this process run on
};

MachineFacts GatherMachineFacts();

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_MACHINE_FACTS_H_
