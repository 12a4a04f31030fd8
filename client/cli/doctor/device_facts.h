// What the worker says of this machine's CUDA devices and of what goes with them.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_DEVICE_FACTS_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_DEVICE_FACTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/cluster/device_probe.h"

namespace perigee {

struct DeviceFacts {
  // Lines "key value" of `perigee-worker --describe_devices` (worker/device_description.h has the
  // keys); what is not known has no entry.
  std::map<std::string, std::string> told;
  std::string problem;  // why the worker told nothing, or not all; else empty
  // Where the pipe of a running MPS control daemon is; empty: there is none.
  std::string mps_pipe;

  int32_t devices() const;  // 0 where that is not known
  // What is told of one, by the rest of its key ("name"); empty: nothing.
  std::string Of(int32_t device, const std::string& key) const;
  std::string Told(const std::string& key) const;
};

// Runs the worker, and waits for it no longer than the timeout. Call it while the process has one
// thread.
DeviceFacts GatherDeviceFacts(const std::string& worker_program,
                              absl::Duration timeout = kProbeTimeout);

// Adds such a line; one of another form is left out.
void TakeDeviceLine(const std::string& line, DeviceFacts& facts);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_DEVICE_FACTS_H_
