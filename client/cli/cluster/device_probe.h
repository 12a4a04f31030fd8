// Asks this machine's worker program which CUDA devices there are.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_DEVICE_PROBE_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_DEVICE_PROBE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/cluster/device_share.h"

namespace perigee {

// A driver takes a second or two where nothing else holds many devices open.
inline constexpr absl::Duration kProbeTimeout = absl::Seconds(30);

// Runs `perigee-worker --list_devices` and waits for its end. Call it while the process has one
// thread. INVALID_ARGUMENT: what the worker said where it refused (exit status 2), such as that
// there is no device. FAILED_PRECONDITION: it failed otherwise. DEADLINE_EXCEEDED: it had not ended
// within the timeout, and was killed.
absl::StatusOr<std::vector<ListedDevice>> ProbeDevices(const std::string& worker_program,
                                                       absl::Duration timeout = kProbeTimeout);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_DEVICE_PROBE_H_
