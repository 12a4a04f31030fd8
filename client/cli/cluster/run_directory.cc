#include "client/cli/cluster/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/local/private_directory.h"

namespace perigee {
namespace {

// A socket's path ends at 107 characters; this leaves room for sockets/NAME-INCARNATION.sock.
constexpr size_t kMaxTemporaryPath = 40;

absl::StatusOr<std::string> MakeTemporary() {
  const std::string parent = RunDirectoryParent();
  std::string path = absl::StrCat(parent, "/perigee-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make a directory in ", parent, ": ", std::strerror(errno)));
  }
  return path;
}

// Holds the lock while the descriptor is open, even where the process is killed.
absl::StatusOr<FileDescriptor> Lock(const std::string& directory) {
  const std::string path = directory + "/lock";
  FileDescriptor fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
  }
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::UnavailableError(
        absl::StrCat("directory ", directory, " is in use by another cluster"));
  }
  return fd;
}

}  // namespace

absl::StatusOr<RunDirectory> RunDirectory::Create(const std::string& kept) {
  RunDirectory directory;
  if (!kept.empty()) {
    const absl::Status made = EnsurePrivateDirectory(kept);
    if (!made.ok()) return made;
    auto lock = Lock(kept);
    if (!lock.ok()) return lock.status();
    directory.lock_ = *std::move(lock);
  }
  auto temporary = MakeTemporary();
  if (!temporary.ok()) return temporary.status();
  directory.temporary_ = *temporary;
  directory.durable_ = kept.empty() ? *temporary : kept;
  const std::string logs = directory.durable_ + "/logs";
  for (const std::string& path : {directory.socket_dir(), directory.data_dir(), logs}) {
    const absl::Status made = EnsurePrivateDirectory(path);
    if (made.ok()) continue;
    Remove(*temporary);
    return made;
  }
  return directory;
}

void RunDirectory::Remove(const std::string& temporary) {
  std::error_code ignored;
  std::filesystem::remove_all(temporary, ignored);
}

void RunDirectory::RemoveSockets(const std::string& name) const {
  std::error_code ignored;
  std::vector<std::filesystem::path> stale;
  for (const auto& entry : std::filesystem::directory_iterator(socket_dir(), ignored)) {
    if (absl::StartsWith(entry.path().filename().string(), name + "-")) {
      stale.push_back(entry.path());
    }
  }
  for (const auto& path : stale) std::filesystem::remove(path, ignored);
}

std::string RunDirectoryParent() {
  const char* variable = std::getenv("TMPDIR");
  const std::string parent = variable == nullptr || *variable != '/' ? "/tmp" : variable;
  return parent.size() > kMaxTemporaryPath ? "/tmp" : parent;
}

std::string LastLine(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

}  // namespace perigee
