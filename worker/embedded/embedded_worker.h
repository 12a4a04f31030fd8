// The embedded worker: a worker as a part of a framework's process. It registers with the
// coordinator like any other, is placed, leased and fenced like any other, and serves peers, remote
// clients and local clients like any other; and its own process is a client of its rank with no
// socket in between.
//
//   EmbeddedWorker::Start, in one process per rank (or several in one)
//   Client::CreateGroup and CreateBuffer, by one of them (client/lib/client.h)
//   Client::IssueAttachTicket for the own rank, EmbeddedWorker::Attach
//   RankClient's operations, from here on without a call
//
// The ticket is what keeps programs and clients apart: an embedded client is one of a buffer's
// clients, of the same period as the local clients of its other ranks
// (docs/decisions/0010-attachments.md). What it shares with the worker it maps for itself, so that
// its addresses outlive the generation: a loss ends its operations and not its process.
//
// On a GPU its streams share the process' hardware queues with those of the worker: set
// CUDA_DEVICE_MAX_CONNECTIONS and CUDA_DEVICE_MAX_COPY_CONNECTIONS to 32 before CUDA is first used.
#ifndef PERIGEE_WORKER_EMBEDDED_EMBEDDED_WORKER_H_
#define PERIGEE_WORKER_EMBEDDED_EMBEDDED_WORKER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/lib/rank_client.h"
#include "proto/v1/attachments.pb.h"
#include "worker/worker.h"

namespace perigee {

class EmbeddedLink;

// Thread-safe.
class EmbeddedWorker {
 public:
  // Worker::Start. Empty in the options: `host` is this machine's name, `socket_dir` a directory of
  // its own that is removed at the end. FAILED_PRECONDITION: no directory can be made. The process'
  // limit of open files is its owner's to raise: every mapping of a peer's memory holds one.
  static absl::StatusOr<std::unique_ptr<EmbeddedWorker>> Start(WorkerOptions options);
  ~EmbeddedWorker();  // Shutdown
  EmbeddedWorker(const EmbeddedWorker&) = delete;
  EmbeddedWorker& operator=(const EmbeddedWorker&) = delete;

  const Worker& worker() const { return *worker_; }

  // Spends the ticket (Client::IssueAttachTicket): one client at a time, as over the socket. It may
  // outlive the worker; its commands fail then. INVALID_ARGUMENT: a ticket that cannot be;
  // PERMISSION_DENIED, FAILED_PRECONDITION, DEADLINE_EXCEEDED: one that is unknown, for another
  // worker, rank or generation, or spent, or too old; UNAVAILABLE: the worker has been
  // shut down, or the attachment been ended.
  absl::StatusOr<std::unique_ptr<RankClient>> Attach(const v1::AttachTicket& ticket);

  // Worker::Shutdown. Clients that are attached are told. Idempotent; not from on_leave.
  void Shutdown();

 private:
  EmbeddedWorker(std::unique_ptr<Worker> worker, std::string own_directory);

  const std::unique_ptr<Worker> worker_;
  const std::shared_ptr<EmbeddedLink> link_;
  const std::string own_directory_;  // empty: it was given
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_EMBEDDED_EMBEDDED_WORKER_H_
