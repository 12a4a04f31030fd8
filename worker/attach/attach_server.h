// The socket where local clients attach, and the leases of those that have. One thread; a silent or
// broken connection holds up nobody else.
#ifndef PERIGEE_WORKER_ATTACH_ATTACH_SERVER_H_
#define PERIGEE_WORKER_ATTACH_ATTACH_SERVER_H_

#include <poll.h>

#include <array>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/local/unix_socket.h"
#include "proto/local/wait_limit.h"
#include "proto/v1/command.pb.h"
#include "worker/attach/attach_ticket_book.h"
#include "worker/attach/attachment.h"
#include "worker/attach/client_users.h"
#include "worker/attach/wake_event.h"
#include "worker/session/session.h"

namespace perigee {

// Called from the server's thread or from within Serve; neither blocks nor calls back. `on_end` is
// called once, last.
struct AttachEvents {
  std::function<void(const v1::ClientReport&)> on_report;
  std::function<void(const AttachmentEnd&)> on_end;
};

// What a client in this process gets instead of an answer over a connection. Its lease is the
// attachment itself: whoever has it stops it and awaits its end.
struct EmbeddedAttachment {
  std::shared_ptr<Attachment> attachment;
  AttachReply reply;
  std::array<FileDescriptor, kAttachParts> descriptors;  // duplicates
  std::vector<FileDescriptor> peers;                     // AttachReply.peers, likewise
  BufferShape shape;
};

// Thread-safe.
class AttachServer {
 public:
  // Errors: UnixListener::Listen. Where other users are allowed, the path's directory is one that
  // they can enter. The environment outlives the server.
  static absl::StatusOr<std::unique_ptr<AttachServer>> Start(const std::string& path,
                                                             const ClientUsers& users,
                                                             const SessionEnvironment& environment);
  // Ends what is left; blocks until its operations have ended. The path is gone.
  ~AttachServer();

  // Makes the ticket good and says so (ADMITTED), before it returns. On failure nothing is kept and
  // no event comes: UNIMPLEMENTED, RESOURCE_EXHAUSTED, INVALID_ARGUMENT: the ticket, id, life or
  // sequence; NOT_FOUND, FAILED_PRECONDITION: the buffer.
  absl::Status Serve(Session& session, const v1::ServeClientCommand& command, AttachEvents events);
  // Presents a ticket from within this process; spends it as a connection does. Blocks until the
  // server's thread has answered, which is soon. Errors: AttachTicketBook::Redeem; UNAVAILABLE: the
  // attachment has been ended, or the server ends; RESOURCE_EXHAUSTED: no descriptors are left.
  absl::StatusOr<EmbeddedAttachment> AttachEmbedded(const AttachRequest& request);
  // One that is unknown or has ended is fine.
  void End(Generation generation, uint64_t attachment_id, const std::string& reason,
           absl::optional<Sequence> beyond = absl::nullopt);

  const std::string& path() const { return listener_.path(); }
  // Looks at the clock now. Only for a clock that a test moves.
  void Poke() { wake_.Set(); }

 private:
  // A connection whose request has not come.
  struct Caller {
    UnixSocket socket;
    WaitLimit limit;
  };
  struct Lease {
    UnixSocket socket;
    FileDescriptor process;  // perhaps not valid
    PeerCredentials client;
    bool over = false;
  };
  // A caller in this process.
  struct EmbeddedCaller {
    AttachRequest request;
    std::promise<absl::StatusOr<EmbeddedAttachment>> answer;
  };
  struct Entry {
    Generation generation;
    uint64_t attachment_id = 0;
    std::shared_ptr<Attachment> attachment;
    AttachEvents events;
    absl::optional<Lease> lease;  // of the thread
  };

  AttachServer(UnixListener listener, const ClientUsers& users,
               const SessionEnvironment& environment);
  void Run();
  // Blocks until there may be something to do.
  void AwaitWork(bool accepting);
  // False when this worker has no descriptors left for new connections.
  bool AcceptAll();
  void ServeCallers();
  void ServeCaller(UnixSocket& socket);
  // On success the connection has become a lease.
  absl::Status Attach(UnixSocket& socket);
  absl::StatusOr<uint64_t> Redeem(const AttachRequest& request);
  absl::Status HandOver(uint64_t key, UnixSocket& socket, const PeerCredentials& client);
  void ServeEmbeddedCallers();
  absl::StatusOr<EmbeddedAttachment> HandOverEmbedded(const AttachRequest& request);
  void WatchLeases();
  void WatchLease(Attachment& attachment, Lease& lease);
  void ExpireTickets();
  void AdvanceAll();

  // pid: of the client, where there is one.
  void Report(const Entry& entry, v1::ClientReport::State state, int32_t pid = 0) const;

  UnixListener listener_;
  const ClientUsers users_;
  const SessionEnvironment& environment_;
  WakeEvent wake_;
  std::vector<Caller> callers_;  // of the thread

  mutable std::mutex mutex_;
  bool stopping_ = false;              // guarded by mutex_, as all below
  AttachTicketBook tickets_;           // by key
  std::map<uint64_t, Entry> entries_;  // entries are added by Serve and removed by the thread
  std::vector<EmbeddedCaller> embedded_callers_;
  uint64_t last_key_ = 0;
  std::thread thread_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_ATTACH_ATTACH_SERVER_H_
