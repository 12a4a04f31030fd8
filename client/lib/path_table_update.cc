#include "client/lib/path_table_update.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace perigee {
namespace {

constexpr absl::Duration kLockPause = absl::Milliseconds(5);

// A lock of this open file, so that threads of one process keep each other out, too.
class FileLock {
 public:
  static absl::StatusOr<FileLock> Take(const std::string& path, absl::Duration wait) {
    FileLock lock(open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0666));
    if (lock.fd_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
    const absl::Time deadline = absl::Now() + wait;
    while (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        return absl::ErrnoToStatus(errno, absl::StrCat("cannot lock ", path));
      }
      if (absl::Now() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat("somebody else has locked ", path, " for ", absl::FormatDuration(wait)));
      }
      absl::SleepFor(kLockPause);
    }
    return lock;
  }
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock(const FileLock&) = delete;
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

// Two names of one file have one lock, and a link is not replaced by a file.
std::string Resolved(const std::string& path) {
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  return error ? path : resolved.string();
}

}  // namespace

absl::Status AddToPathTable(const std::string& path, absl::Span<const PathCell> cells,
                            absl::Duration wait) {
  const std::string file = Resolved(path);
  const absl::StatusOr<FileLock> lock = FileLock::Take(absl::StrCat(file, ".lock"), wait);
  if (!lock.ok()) {
    return absl::Status(
        lock.status().code(),
        absl::StrCat("path table ", path, " stays as it is: ", lock.status().message()));
  }
  absl::StatusOr<PathTable> table = PathTable::Read(file);
  if (absl::IsNotFound(table.status())) table = PathTable();
  if (!table.ok()) return table.status();
  for (const PathCell& cell : cells) table->Put(cell);
  return table->Write(file);
}

}  // namespace perigee
