// Messages with file descriptors between processes of one user on one host: SOCK_SEQPACKET over a
// path in a private directory. A message arrives whole or not at all; all input is untrusted.
#ifndef PERIGEE_PROTO_LOCAL_UNIX_SOCKET_H_
#define PERIGEE_PROTO_LOCAL_UNIX_SOCKET_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "proto/local/file_descriptor.h"
#include "proto/local/wait_limit.h"

namespace perigee {

// sun_path has 108 bytes and ends with a zero.
inline constexpr size_t kMaxSocketPathBytes = 107;
// SCM_RIGHTS takes no more in one message.
inline constexpr size_t kMaxDescriptorsPerMessage = 253;

struct SocketMessage {
  std::string bytes;
  std::vector<FileDescriptor> descriptors;
};

// One end of a connection. Send and Receive: from one thread at a time. Every wait is limited.
class UnixSocket {
 public:
  // The peer's user is checked to be ours: PERMISSION_DENIED. UNAVAILABLE: nobody listens there.
  static absl::StatusOr<UnixSocket> Connect(const std::string& path, const WaitLimit& limit);

  // `bytes` is not empty; `descriptors` stay the caller's. UNAVAILABLE: the peer has gone.
  absl::Status Send(absl::string_view bytes, absl::Span<const int> descriptors,
                    const WaitLimit& limit);
  // One message of at most max_bytes with at most max_descriptors. UNAVAILABLE: the peer has closed
  // the connection. INVALID_ARGUMENT: more bytes or descriptors came; what was received is closed.
  absl::StatusOr<SocketMessage> Receive(size_t max_bytes, size_t max_descriptors,
                                        const WaitLimit& limit);
  int fd() const { return fd_.get(); }

 private:
  friend class UnixListener;
  explicit UnixSocket(FileDescriptor fd) : fd_(std::move(fd)) {}
  FileDescriptor fd_;
};

// Owns the socket file and unlinks it.
class UnixListener {
 public:
  // INVALID_ARGUMENT: the path has more than 107 bytes, or its directory is not private to this
  // user. ALREADY_EXISTS: something is at the path.
  static absl::StatusOr<UnixListener> Listen(const std::string& path);
  ~UnixListener();
  UnixListener(UnixListener&&) noexcept = default;
  UnixListener& operator=(UnixListener&&) = delete;

  // The next waiting connection, or none; never blocks. PERMISSION_DENIED: it came from another
  // user and was closed. RESOURCE_EXHAUSTED: no descriptors left.
  absl::StatusOr<absl::optional<UnixSocket>> Accept();
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

 private:
  UnixListener(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  FileDescriptor fd_;
  std::string path_;
};

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_UNIX_SOCKET_H_
