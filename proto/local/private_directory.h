// Directories that only this user can enter: what lies in them needs no further protection. And
// such that others may enter, and only this user can change.
#ifndef PERIGEE_PROTO_LOCAL_PRIVATE_DIRECTORY_H_
#define PERIGEE_PROTO_LOCAL_PRIVATE_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"

namespace perigee {

// Makes `path` with mode 0700 if nothing is there (its parent must be). INVALID_ARGUMENT, naming
// what was found, unless it is then a directory of this user that nobody else may enter.
absl::Status EnsurePrivateDirectory(const std::string& path);
// The same check, making nothing.
absl::Status CheckPrivateDirectory(const std::string& path);

// The same with mode 0711, of a directory that nobody else may write to.
absl::Status EnsureOwnDirectory(const std::string& path);
absl::Status CheckOwnDirectory(const std::string& path);

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_PRIVATE_DIRECTORY_H_
