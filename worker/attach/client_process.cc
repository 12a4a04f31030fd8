#include "worker/attach/client_process.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

// Since Linux 6.5; older headers do not have it.
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace perigee {

FileDescriptor WatchProcess(const UnixSocket& socket, const PeerCredentials& peer) {
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (getsockopt(socket.fd(), SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0 && fd >= 0) {
    return FileDescriptor(fd);
  }
  // Before that: between its connecting and this call the number might have been used again, but
  // its request has just come, or its connection has ended.
  if (peer.pid <= 0) return FileDescriptor();
  return FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
}

}  // namespace perigee
