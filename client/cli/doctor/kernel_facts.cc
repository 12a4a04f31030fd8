#include "client/cli/doctor/kernel_facts.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/local/file_descriptor.h"

namespace perigee {
namespace {

constexpr size_t kBytes = 4096;
constexpr int kWaitMilliseconds = 1000;

absl::Status Failed(absl::string_view what) {
  const int error = errno;
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", std::strerror(error)));
}

// Unmaps what it owns.
class Mapping {
 public:
  // Of a file, or with -1 of shared memory without one.
  explicit Mapping(int fd)
      : data_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0)) {}
  // The same memory at another address.
  // The same memory at another address.
  static Mapping Again(const Mapping& other) {
    return Mapping(mremap(other.data_, 0, kBytes, MREMAP_MAYMOVE));
  }
  ~Mapping() {
    if (valid()) munmap(data_, kBytes);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool valid() const { return data_ != MAP_FAILED; }
  std::atomic<uint32_t>* word() const { return static_cast<std::atomic<uint32_t>*>(data_); }

 private:
  explicit Mapping(void* data) : data_(data) {}

  void* const data_;
};

absl::StatusOr<FileDescriptor> NewMemfd() {
  FileDescriptor fd(memfd_create("perigee-doctor", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  if (!fd.valid()) return Failed("memfd_create");
  const int error = posix_fallocate(fd.get(), 0, kBytes);
  errno = error;
  if (error != 0) return Failed("posix_fallocate");
  return fd;
}

absl::Status TryMemfd() {
  const auto fd = NewMemfd();
  if (!fd.ok()) return fd.status();
  const Mapping mapping(fd->get());
  if (!mapping.valid()) return Failed("mmap");
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (fcntl(fd->get(), F_ADD_SEALS, kSeals) != 0) return Failed("F_ADD_SEALS");
  if (ftruncate(fd->get(), 0) == 0) {
    return absl::FailedPreconditionError("the sealed length of a memfd can be changed");
  }
  mapping.word()->store(1);  // made before the seal: it can still write
  const Mapping later(fd->get());
  if (!later.valid()) return absl::OkStatus();
  return absl::FailedPreconditionError("a memfd sealed for reading can be mapped for writing");
}

void FutexWait(std::atomic<uint32_t>* word, uint32_t expected) {
  const timespec timeout = {0, kWaitMilliseconds * 1'000'000L / 10};
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

// A child sleeps on a word that it sees at another address than its waker.
absl::Status TryFutex() {
  const Mapping mine(-1);
  if (!mine.valid()) return Failed("mmap");
  const Mapping childs = Mapping::Again(mine);
  if (!childs.valid()) return Failed("mremap");
  const pid_t child = fork();
  if (child < 0) return Failed("fork");
  if (child == 0) {
    for (int round = 0; round < 10 && childs.word()->load() == 0; ++round) {
      FutexWait(childs.word(), 0);
    }
    _exit(childs.word()->load() == 0 ? 1 : 0);
  }
  // Waking counts who slept: it is done again until the child does.
  long woken = 0;
  for (int round = 0; round < kWaitMilliseconds && woken == 0; ++round) {
    woken = syscall(SYS_futex, mine.word(), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    if (woken < 0) break;
    if (woken == 0) poll(nullptr, 0, 1);
  }
  const absl::Status status = woken < 0 ? Failed("FUTEX_WAKE") : absl::OkStatus();
  mine.word()->store(1);
  syscall(SYS_futex, mine.word(), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  waitpid(child, nullptr, 0);
  if (woken == 0) {
    return absl::FailedPreconditionError("no process was found asleep on a shared word");
  }
  return status;
}

absl::Status TryPidfd() {
  const pid_t child = fork();
  if (child < 0) return Failed("fork");
  if (child == 0) {
    pause();
    _exit(0);
  }
  const FileDescriptor handle(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  absl::Status status = handle.valid() ? absl::OkStatus() : Failed("pidfd_open");
  kill(child, SIGKILL);
  pollfd fd = {handle.get(), POLLIN, 0};
  if (status.ok() && poll(&fd, 1, kWaitMilliseconds) != 1) {
    status = absl::FailedPreconditionError("the end of a process was not seen on its descriptor");
  }
  waitpid(child, nullptr, 0);
  return status;
}

// Sends `sent` with one byte over `socket`.
absl::Status SendDescriptor(int socket, int sent) {
  char byte = 1;
  iovec bytes = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr header = {};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* part = CMSG_FIRSTHDR(&header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &sent, sizeof(int));
  return sendmsg(socket, &header, MSG_NOSIGNAL) == 1 ? absl::OkStatus() : Failed("sendmsg");
}

absl::StatusOr<FileDescriptor> ReceiveDescriptor(int socket) {
  char byte = 0;
  iovec bytes = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr header = {};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  if (recvmsg(socket, &header, MSG_CMSG_CLOEXEC) != 1) return Failed("recvmsg");
  const cmsghdr* part = CMSG_FIRSTHDR(&header);
  if (part == nullptr || part->cmsg_type != SCM_RIGHTS) {
    return absl::FailedPreconditionError("a descriptor was sent and did not arrive");
  }
  int received = -1;
  std::memcpy(&received, CMSG_DATA(part), sizeof(int));
  return FileDescriptor(received);
}

absl::Status TryDescriptorPassing() {
  std::array<int, 2> ends = {};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    return Failed("socketpair of SOCK_SEQPACKET");
  }
  const FileDescriptor sender(ends[0]);
  const FileDescriptor receiver(ends[1]);
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(receiver.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return Failed("SO_PEERCRED");
  }
  if (peer.uid != geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("SO_PEERCRED tells user ", peer.uid, " of a socket of user ", geteuid()));
  }
  const absl::Status sent = SendDescriptor(sender.get(), sender.get());
  if (!sent.ok()) return sent;
  const auto received = ReceiveDescriptor(receiver.get());
  if (!received.ok()) return received.status();
  struct stat one = {};
  struct stat other = {};
  if (fstat(sender.get(), &one) != 0 || fstat(received->get(), &other) != 0) return Failed("fstat");
  if (one.st_ino == other.st_ino) return absl::OkStatus();
  return absl::FailedPreconditionError("another descriptor arrived than was sent");
}

absl::Status TryProc() {
  std::error_code error;
  if (std::filesystem::read_symlink("/proc/self/exe", error).empty()) {
    return absl::FailedPreconditionError(absl::StrCat("/proc/self/exe: ", error.message()));
  }
  for (const char* path : {"/proc/meminfo", "/proc/cpuinfo", "/proc/self/cgroup"}) {
    std::ifstream file(path);
    std::string line;
    if (!std::getline(file, line)) {
      return absl::FailedPreconditionError(absl::StrCat(path, " cannot be read"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

KernelFacts GatherKernelFacts() {
  KernelFacts facts;
  utsname name = {};
  if (uname(&name) == 0) facts.release = absl::StrCat(name.sysname, " ", name.release);
  facts.memfd = TryMemfd();
  facts.futex = TryFutex();
  facts.pidfd = TryPidfd();
  facts.descriptor_passing = TryDescriptorPassing();
  facts.proc = TryProc();
  return facts;
}

}  // namespace perigee
