#include "proto/local/private_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace perigee {
namespace {

absl::Status CannotMake(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat("cannot make directory ", path, ": ", std::strerror(errno)));
}

// A directory of this user with none of the `forbidden` bits in its mode.
absl::Status Check(const std::string& path, mode_t forbidden, const char* expected) {
  struct stat found;
  if (lstat(path.c_str(), &found) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("directory ", path, ": ", std::strerror(errno)));
  }
  if (!S_ISDIR(found.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a directory"));
  }
  if (found.st_uid != geteuid()) {
    return absl::InvalidArgumentError(absl::StrCat("directory ", path, " belongs to user ",
                                                   found.st_uid, ", expected ", geteuid()));
  }
  if ((found.st_mode & forbidden) != 0) {
    return absl::InvalidArgumentError(absl::StrFormat("directory %s has mode %04o, expected %s",
                                                      path, found.st_mode & 07777, expected));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status EnsurePrivateDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return CannotMake(path);
  return CheckPrivateDirectory(path);
}

absl::Status CheckPrivateDirectory(const std::string& path) { return Check(path, 077, "0700"); }

absl::Status EnsureOwnDirectory(const std::string& path) {
  const bool made = mkdir(path.c_str(), 0711) == 0;
  if (!made && errno != EEXIST) return CannotMake(path);
  // The umask may have taken bits away.
  if (made && chmod(path.c_str(), 0711) != 0) return CannotMake(path);
  return CheckOwnDirectory(path);
}

absl::Status CheckOwnDirectory(const std::string& path) {
  return Check(path, 022, "0711 or another that lets nobody else write");
}

}  // namespace perigee
