// What the control groups that this process is in leave of memory and CPUs; versions 1 and 2.
#ifndef PERIGEE_PROTO_SUPPORT_CONTROL_GROUP_H_
#define PERIGEE_PROTO_SUPPORT_CONTROL_GROUP_H_

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

// CPUs that this process can use at the same time, 1 at least: those that it may run on, as far as
// such limits let it.
int UsableCpus(const ControlGroupLimits& limits = ReadControlGroupLimits());

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_CONTROL_GROUP_H_
