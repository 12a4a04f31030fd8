// The socket where peers fetch the descriptors of this worker's part of a buffer, each against a
// one-time ticket. One thread; a silent or broken connection holds up nobody else.
#ifndef PERIGEE_WORKER_MEMORY_DESCRIPTOR_SERVER_H_
#define PERIGEE_WORKER_MEMORY_DESCRIPTOR_SERVER_H_

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/common/ids.h"
#include "proto/local/descriptor_message.h"
#include "proto/local/unix_socket.h"
#include "proto/local/wait_limit.h"
#include "proto/support/clock.h"
#include "worker/memory/ticket_book.h"

namespace perigee {

struct OfferedPart {
  PartDescription description;
  int descriptor = -1;  // borrowed until Withdraw has returned
};

// Thread-safe.
class DescriptorServer {
 public:
  // Errors: UnixListener::Listen. The clock dates tickets and outlives the server.
  static absl::StatusOr<std::unique_ptr<DescriptorServer>> Start(const std::string& path,
                                                                 const Clock& clock);
  ~DescriptorServer();  // the thread has ended and the path is gone

  // From now on each ticket fetches the parts once, within its life.
  void Publish(const ExportScope& scope, const std::vector<PeerTicket>& tickets,
               std::vector<OfferedPart> parts);
  // When it returns nothing of the buffer is being handed out any more.
  void Withdraw(BufferId buffer, Generation generation);

  const std::string& path() const { return listener_.path(); }

 private:
  struct Offer {
    BufferId buffer;
    Generation generation;
    std::vector<OfferedPart> parts;
  };
  struct Connection {
    UnixSocket socket;
    WaitLimit limit;  // for its one request
  };

  DescriptorServer(UnixListener listener, const Clock& clock);
  void Run();
  // Blocks until there is something to do; false when the server ends.
  bool AwaitWork(bool accepting);
  // False when this worker has no descriptors left for new connections.
  bool AcceptAll();
  void ServeReady();
  void Serve(UnixSocket& socket);
  absl::Status HandOut(const DescriptorRequest& request, UnixSocket& socket);

  UnixListener listener_;
  const Clock& clock_;
  Interrupt stop_;
  std::vector<Connection> connections_;  // of the thread
  std::mutex mutex_;
  TicketBook tickets_;         // guarded by mutex_
  std::vector<Offer> offers_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_MEMORY_DESCRIPTOR_SERVER_H_
