// Messages with file descriptors between processes of one host: SOCK_SEQPACKET over a path in a
// directory of this user. A message arrives whole or not at all; all input is untrusted.
#ifndef PERIGEE_PROTO_LOCAL_UNIX_SOCKET_H_
#define PERIGEE_PROTO_LOCAL_UNIX_SOCKET_H_

#include <cstddef>
#include <cstdint>
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

// A process as the kernel vouches for it, at the time of its call.
struct PeerCredentials {
  int32_t pid = 0;  // 0: in a pid namespace that cannot be seen from here
  uint32_t uid = 0;
  friend constexpr bool operator==(const PeerCredentials&, const PeerCredentials&) = default;
};

struct SocketMessage {
  std::string bytes;
  std::vector<FileDescriptor> descriptors;
  // Who sent it, which need not be who connected; of connections to ListenOptions::name_senders.
  absl::optional<PeerCredentials> sender;
};

// One end of a connection. Send and Receive: from one thread at a time. Every wait is limited.
class UnixSocket {
 public:
  // The peer's user is checked to be ours, or `peer_uid`: PERMISSION_DENIED. UNAVAILABLE: nobody
  // listens there.
  static absl::StatusOr<UnixSocket> Connect(const std::string& path, const WaitLimit& limit);
  static absl::StatusOr<UnixSocket> Connect(const std::string& path, const WaitLimit& limit,
                                            uint32_t peer_uid);
  // Who connected, or listened before this end did. PERMISSION_DENIED: the kernel does not say.
  absl::StatusOr<PeerCredentials> peer() const;

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

struct ListenOptions {
  // Who connects may be any user, for the caller to judge by peer(); the directory is then one that
  // others may enter and not write to. Else it is private, and others are refused here.
  bool any_user = false;
  bool name_senders = false;
};

// Owns the socket file and unlinks it.
class UnixListener {
 public:
  // INVALID_ARGUMENT: the path has more than 107 bytes, or its directory is not private to this
  // user (or, with any_user, is another's or open to others' writing). ALREADY_EXISTS: something is
  // at the path.
  static absl::StatusOr<UnixListener> Listen(const std::string& path,
                                             const ListenOptions& options = {});
  ~UnixListener();
  UnixListener(UnixListener&&) noexcept = default;
  UnixListener& operator=(UnixListener&&) = delete;

  // The next waiting connection, or none; never blocks. PERMISSION_DENIED: it came from another
  // user and was closed. RESOURCE_EXHAUSTED: no descriptors left.
  absl::StatusOr<absl::optional<UnixSocket>> Accept();
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

 private:
  UnixListener(FileDescriptor fd, std::string path, bool any_user)
      : fd_(std::move(fd)), path_(std::move(path)), any_user_(any_user) {}
  FileDescriptor fd_;
  std::string path_;
  bool any_user_;
};

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_UNIX_SOCKET_H_
