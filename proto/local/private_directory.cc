#include "proto/local/private_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace perigee {

absl::Status EnsurePrivateDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot make directory ", path, ": ", std::strerror(errno)));
  }
  return CheckPrivateDirectory(path);
}

absl::Status CheckPrivateDirectory(const std::string& path) {
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
  if ((found.st_mode & 077) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("directory %s has mode %04o, expected 0700", path, found.st_mode & 07777));
  }
  return absl::OkStatus();
}

}  // namespace perigee
