// What the control groups that this process is in leave of memory and CPUs; versions 1 and 2.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_CONTROL_GROUP_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_CONTROL_GROUP_H_

#include <cstdint>
#include <string>

#include "absl/types/optional.h"

namespace perigee {

// The tightest of the own group and its parents; nullopt: no limit.
struct ControlGroupLimits {
  absl::optional<uint64_t> memory_bytes;
  absl::optional<uint64_t> free_bytes;  // of that limit, not used yet
  absl::optional<double> cpus;
};

// proc, cgroup: the folders to read, for tests. Never fails: what cannot be read does not limit.
ControlGroupLimits ReadControlGroupLimits(const std::string& proc = "/proc",
                                          const std::string& cgroup = "/sys/fs/cgroup");

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_CONTROL_GROUP_H_
