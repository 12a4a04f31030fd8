// The process at the other end of a connection, to be told of its end: its connection may be held
// open by others that it has passed it to.
#ifndef PERIGEE_WORKER_ATTACH_CLIENT_PROCESS_H_
#define PERIGEE_WORKER_ATTACH_CLIENT_PROCESS_H_

#include "proto/local/file_descriptor.h"
#include "proto/local/unix_socket.h"

namespace perigee {

// Readable once the process has ended. Not valid where the kernel has no such thing, or the process
// is not to be seen from here: then only the connection tells.
FileDescriptor WatchProcess(const UnixSocket& socket, const PeerCredentials& peer);

}  // namespace perigee

#endif  // PERIGEE_WORKER_ATTACH_CLIENT_PROCESS_H_
