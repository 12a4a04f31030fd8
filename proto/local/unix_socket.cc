#include "proto/local/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "proto/local/private_directory.h"

namespace perigee {
namespace {

constexpr int kBacklog = 128;
// A full backlog cannot be polled for; a connecting process looks again this often.
constexpr absl::Duration kBacklogPause = absl::Milliseconds(5);
constexpr size_t kControlBytes =
    CMSG_SPACE(sizeof(int) * kMaxDescriptorsPerMessage) + CMSG_SPACE(sizeof(ucred));

absl::Status SocketError(absl::StatusCode code, absl::string_view what) {
  return absl::Status(code, absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<sockaddr_un> Address(const std::string& path) {
  if (path.empty() || path.size() > kMaxSocketPathBytes) {
    return absl::InvalidArgumentError(absl::StrCat("socket path ", path, " has ", path.size(),
                                                   " bytes; the limit is ", kMaxSocketPathBytes));
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<FileDescriptor> NewSocket() {
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SocketError(absl::StatusCode::kResourceExhausted, "socket");
  return fd;
}

absl::StatusOr<PeerCredentials> PeerOf(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return SocketError(absl::StatusCode::kPermissionDenied, "peer credentials");
  }
  return PeerCredentials{peer.pid, peer.uid};
}

// A file mode alone would not tell who is at the other end.
absl::Status CheckPeer(int fd, uint32_t expected_uid) {
  const absl::StatusOr<PeerCredentials> peer = PeerOf(fd);
  if (!peer.ok()) return peer.status();
  if (peer->uid == expected_uid) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the peer is of user ", peer->uid, ", expected ", expected_uid));
}

bool WouldBlock(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

// Owns every descriptor of the message before anything is judged, so that none is leaked.
void TakeControlData(msghdr& header, SocketMessage& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_CREDENTIALS && part->cmsg_len == CMSG_LEN(sizeof(ucred))) {
      ucred sender;
      std::memcpy(&sender, CMSG_DATA(part), sizeof(sender));
      message.sender = PeerCredentials{sender.pid, sender.uid};
    }
    if (part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      message.descriptors.emplace_back(fd);
    }
  }
}

}  // namespace

absl::StatusOr<UnixSocket> UnixSocket::Connect(const std::string& path, const WaitLimit& limit) {
  return Connect(path, limit, geteuid());
}

absl::StatusOr<UnixSocket> UnixSocket::Connect(const std::string& path, const WaitLimit& limit,
                                               uint32_t peer_uid) {
  const absl::StatusOr<sockaddr_un> address = Address(path);
  if (!address.ok()) return address.status();
  absl::StatusOr<FileDescriptor> fd = NewSocket();
  if (!fd.ok()) return fd.status();
  while (connect(fd->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    if (errno == EINTR) continue;
    if (!WouldBlock(errno)) return SocketError(absl::StatusCode::kUnavailable, path);
    if (absl::Status status = limit.Pause(kBacklogPause); !status.ok()) return status;
  }
  if (absl::Status status = CheckPeer(fd->get(), peer_uid); !status.ok()) return status;
  return UnixSocket(*std::move(fd));
}

absl::StatusOr<PeerCredentials> UnixSocket::peer() const { return PeerOf(fd_.get()); }

absl::Status UnixSocket::Send(absl::string_view bytes, absl::Span<const int> descriptors,
                              const WaitLimit& limit) {
  PERIGEE_CHECK(!bytes.empty() && descriptors.size() <= kMaxDescriptorsPerMessage);
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[kControlBytes] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    std::memcpy(CMSG_DATA(part), descriptors.data(), sizeof(int) * descriptors.size());
  }
  while (sendmsg(fd_.get(), &header, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (!WouldBlock(errno)) return SocketError(absl::StatusCode::kUnavailable, "send");
    if (absl::Status status = limit.Wait(fd_.get(), POLLOUT); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<SocketMessage> UnixSocket::Receive(size_t max_bytes, size_t max_descriptors,
                                                  const WaitLimit& limit) {
  PERIGEE_CHECK(max_descriptors <= kMaxDescriptorsPerMessage);
  SocketMessage message;
  message.bytes.resize(max_bytes);
  iovec data{message.bytes.data(), max_bytes};
  alignas(cmsghdr) char control[kControlBytes];
  msghdr header{};
  ssize_t received;
  do {
    if (absl::Status status = limit.Wait(fd_.get(), POLLIN); !status.ok()) return status;
    header = {};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = kControlBytes;
    received = recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC);
  } while (received < 0 && (errno == EINTR || WouldBlock(errno)));
  if (received < 0) return SocketError(absl::StatusCode::kUnavailable, "receive");
  TakeControlData(header, message);
  if ((header.msg_flags & MSG_TRUNC) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of more than ", max_bytes, " bytes was received"));
  }
  if ((header.msg_flags & MSG_CTRUNC) != 0 || message.descriptors.size() > max_descriptors) {
    return absl::InvalidArgumentError(absl::StrCat(
        "more than ", max_descriptors, " descriptors, or control data cut short, were received"));
  }
  if (received == 0) return absl::UnavailableError("the peer closed the connection");
  message.bytes.resize(received);
  return message;
}

absl::StatusOr<UnixListener> UnixListener::Listen(const std::string& path,
                                                  const ListenOptions& options) {
  const absl::StatusOr<sockaddr_un> address = Address(path);
  if (!address.ok()) return address.status();
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash);
  absl::Status status =
      options.any_user ? CheckOwnDirectory(directory) : CheckPrivateDirectory(directory);
  if (!status.ok()) return status;
  absl::StatusOr<FileDescriptor> fd = NewSocket();
  if (!fd.ok()) return fd.status();
  const int on = 1;
  // Accepted connections inherit it, so no message comes before it.
  if (options.name_senders &&
      setsockopt(fd->get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) {
    return SocketError(absl::StatusCode::kInternal, "SO_PASSCRED");
  }
  if (bind(fd->get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return SocketError(
        errno == EADDRINUSE ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kInvalidArgument,
        absl::StrCat("socket ", path));
  }
  UnixListener listener(*std::move(fd), path, options.any_user);
  // Who may not write to the socket file cannot connect.
  if (options.any_user && chmod(path.c_str(), 0666) != 0) {
    return SocketError(absl::StatusCode::kInternal, absl::StrCat("chmod ", path));
  }
  if (listen(listener.fd(), kBacklog) != 0) {
    return SocketError(absl::StatusCode::kInternal, absl::StrCat("listen on ", path));
  }
  return listener;
}

UnixListener::~UnixListener() {
  if (fd_.valid()) unlink(path_.c_str());
}

absl::StatusOr<absl::optional<UnixSocket>> UnixListener::Accept() {
  FileDescriptor fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    const bool exhausted =
        errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (exhausted) return SocketError(absl::StatusCode::kResourceExhausted, "accept");
    return absl::optional<UnixSocket>();  // EAGAIN, or a connection that has gone again
  }
  if (!any_user_) {
    if (absl::Status status = CheckPeer(fd.get(), geteuid()); !status.ok()) return status;
  }
  return absl::make_optional(UnixSocket(std::move(fd)));
}

}  // namespace perigee
