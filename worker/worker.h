// A worker: one device's share of every buffer, its data path, the socket where peers fetch memory
// descriptors, the WorkerService for remote clients, and the link to the coordinator. This is the
// library; main.cc is thin, and tests or a framework may run several in one process.
#ifndef PERIGEE_WORKER_WORKER_H_
#define PERIGEE_WORKER_WORKER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "proto/local/attach_message.h"
#include "proto/local/wait_limit.h"
#include "proto/support/clock.h"
#include "proto/support/defaults.h"
#include "proto/v1/topology.pb.h"

namespace perigee {

struct EmbeddedAttachment;  // worker/attach/attach_server.h

struct WorkerOptions {
  std::string name;                     // {w} of workers/{w}
  std::string host;                     // {h} of hosts/{h}
  std::string coordinator;              // host:port
  std::string address = "127.0.0.1:0";  // where clients reach it; port 0: any free one
  std::string socket_dir;               // 0700; made if it is not there
  // Where local clients attach; made with mode 0711 if it is not there. Empty: socket_dir.
  std::string attach_dir;
  std::set<uint32_t> attach_uids;    // users beside the own that may; attach_dir is given then
  std::unique_ptr<Backend> backend;  // never null
  std::string device_place;          // where its device is, in words; may be empty
  v1::Gpu gpu;                       // its device's links; empty without one
  int threads = 1;                   // that share one operation's rows
  uint64_t tensor_limit_bytes = kTensorLimitBytes;    // of all named tensors and unfinished uploads
  absl::Duration register_timeout = kConnectTimeout;  // how long Start tries to register
  const Interrupt* stop = nullptr;    // raised: Start gives up registering, CANCELLED
  const Clock* clock = &RealClock();  // outlives the worker
  // Called once, from a thread of the worker, when it has to leave: ABORTED, a newer incarnation of
  // its name is registered; DEADLINE_EXCEEDED, it slept for longer than its lease (stopped, or
  // starved), so the group has gone on without it. Its sessions are closed by then and it takes no
  // more commands; the owner calls Shutdown (not from here) and exits. May be empty.
  std::function<void(const absl::Status&)> on_leave;
};

class Worker {
 public:
  // Blocks until the worker serves and is registered. INVALID_ARGUMENT: a bad name, directory or
  // address; UNAVAILABLE: the address is in use, or no coordinator answers within register_timeout;
  // FAILED_PRECONDITION: the coordinator refuses it (another data-path ABI).
  static absl::StatusOr<std::unique_ptr<Worker>> Start(WorkerOptions options);
  ~Worker();  // Shutdown
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const std::string& address() const;      // host:port with the port it got
  const std::string& incarnation() const;  // 16 hex digits
  const std::string& socket_path() const;

  // For a client in this process (worker/embedded/embedded_worker.h): AttachServer::AttachEmbedded.
  // Not after Shutdown, nor while it runs.
  absl::StatusOr<EmbeddedAttachment> AttachEmbedded(const AttachRequest& request);

  // Leaves in good order: streams to the coordinator end, a running program is aborted, memory is
  // given back, the socket file is gone. Bounded by about 2 s. Idempotent.
  void Shutdown();

 private:
  class Impl;
  explicit Worker(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_WORKER_H_
