// The master key: 32 random bytes in a file of their own, from which the keys of publication tokens
// are derived. It is no part of the database, so that a copy of the database alone signs nothing.
#ifndef PERIGEE_SERVER_STORE_MASTER_KEY_H_
#define PERIGEE_SERVER_STORE_MASTER_KEY_H_

#include <string>

#include "absl/status/statusor.h"

namespace perigee {

// The 32 bytes of the file. Where there is none, it is made with the bytes of `fresh` (32 of them,
// unpredictable) and mode 0600, whole or not at all. PERMISSION_DENIED: others than its owner may
// get at it, or this user is not its owner; FAILED_PRECONDITION: it is no plain file of 32 bytes;
// UNAVAILABLE: it cannot be written. Every message names the path, none the bytes.
absl::StatusOr<std::string> LoadMasterKey(const std::string& path, const std::string& fresh);

}  // namespace perigee

#endif  // PERIGEE_SERVER_STORE_MASTER_KEY_H_
