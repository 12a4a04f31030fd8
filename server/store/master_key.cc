#include "server/store/master_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/common/check.h"

namespace perigee {
namespace {

constexpr size_t kBytes = 32;

class Closer {
 public:
  explicit Closer(int fd) : fd_(fd) {}
  ~Closer() {
    if (fd_ >= 0) close(fd_);
  }

 private:
  const int fd_;
};

absl::Status CannotWrite(const std::string& path) {
  return absl::UnavailableError(
      absl::StrCat("master key file ", path, " cannot be written: ", std::strerror(errno)));
}

// A file that another process of this coordinator's directory has made meanwhile stays.
absl::Status Make(const std::string& path, const std::string& fresh) {
  const std::string part = absl::StrCat(path, ".", getpid(), ".part");
  {
    const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) return CannotWrite(path);
    const Closer closer(fd);
    const bool written =
        write(fd, fresh.data(), fresh.size()) == static_cast<ssize_t>(kBytes) && fsync(fd) == 0;
    if (!written) {
      const absl::Status status = CannotWrite(path);
      unlink(part.c_str());
      return status;
    }
  }
  const bool linked = link(part.c_str(), path.c_str()) == 0 || errno == EEXIST;
  const absl::Status status = linked ? absl::OkStatus() : CannotWrite(path);
  unlink(part.c_str());
  if (!status.ok()) return status;
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const Closer closer(fd);
  return fd >= 0 && fsync(fd) == 0 ? absl::OkStatus() : CannotWrite(path);
}

absl::StatusOr<std::string> Read(const std::string& path, int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("master key file ", path, " cannot be read: ", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode) || info.st_size != static_cast<off_t>(kBytes)) {
    return absl::FailedPreconditionError(
        absl::StrCat("master key file ", path, " is not a plain file of ", kBytes, " bytes"));
  }
  if (info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrFormat("master key file %s has mode %04o and owner %d, expected 0600 and owner %d",
                        path, info.st_mode & 07777, info.st_uid, geteuid()));
  }
  std::string key(kBytes, '\0');
  if (read(fd, key.data(), kBytes) != static_cast<ssize_t>(kBytes)) {
    return absl::FailedPreconditionError(
        absl::StrCat("master key file ", path, " cannot be read: ", std::strerror(errno)));
  }
  return key;
}

}  // namespace

absl::StatusOr<std::string> LoadMasterKey(const std::string& path, const std::string& fresh) {
  PERIGEE_CHECK(fresh.size() == kBytes);
  // Twice: the file that is made is read as any other.
  for (const bool first : {true, false}) {
    const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const Closer closer(fd);
    if (fd >= 0) return Read(path, fd);
    if (errno != ENOENT || !first) break;
    if (absl::Status made = Make(path, fresh); !made.ok()) return made;
  }
  const std::string message =
      absl::StrCat("master key file ", path, " cannot be opened: ", std::strerror(errno));
  return errno == EACCES ? absl::PermissionDeniedError(message)
                         : absl::FailedPreconditionError(message);
}

}  // namespace perigee
