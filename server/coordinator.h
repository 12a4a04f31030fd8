// The coordinator of a cluster, as a library: main.cc is thin around it, and tests run it in their
// own process on port 0.
#ifndef PERIGEE_SERVER_COORDINATOR_H_
#define PERIGEE_SERVER_COORDINATOR_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/support/clock.h"
#include "proto/support/defaults.h"

namespace perigee {

struct CoordinatorOptions {
  std::string address = "127.0.0.1:0";  // HOST:PORT; port 0: the system chooses
  std::string data_dir;  // where what survives a restart is kept; made (mode 0700) if missing
  // Holds the master key of publication tokens (server/store/master_key.h); empty: master.key in
  // data_dir.
  std::string master_key_file;
  const Clock* clock = &RealClock();  // outlives the coordinator

  absl::Duration heartbeat_interval = kHeartbeatInterval;
  absl::Duration lease_duration = kLeaseDuration;
  absl::Duration reconnect_grace = kReconnectGrace;
  absl::Duration fence_report_timeout = kFenceReportTimeout;
  absl::Duration forming_timeout = kFormingTimeout;
  absl::Duration drain_timeout = kDrainTimeout;
  absl::Duration progress_interval = kProgressInterval;
};

// A serving coordinator. Thread-safe.
class Coordinator {
 public:
  // Serves when it returns. UNAVAILABLE: the address is in use, or another process uses the data
  // directory; INVALID_ARGUMENT: a malformed address, no data directory; NOT_FOUND,
  // PERMISSION_DENIED, DATA_LOSS: what is wrong with the data directory or the file in it. The
  // message names the address or path.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorOptions& options);
  ~Coordinator();  // Shutdown
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // HOST:PORT with the port it got.
  const std::string& address() const;
  // Looks at the clock now. Only a test that moves a clock of its own needs it.
  void Poke();
  // Ends every stream and call with UNAVAILABLE and stops serving. Bounded by about 2 s. Workers
  // are told nothing: their groups live on. Idempotent.
  void Shutdown();

 private:
  class Impl;
  explicit Coordinator(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_COORDINATOR_H_
