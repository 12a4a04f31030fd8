// Adds cells to a path table in a file, whoever else does so at the same time.
#ifndef PERIGEE_CLIENT_LIB_PATH_TABLE_UPDATE_H_
#define PERIGEE_CLIENT_LIB_PATH_TABLE_UPDATE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/lib/path_table.h"

namespace perigee {

// Others hold the lock for as long as a table takes to be read and written.
inline constexpr absl::Duration kPathTableLockWait = absl::Seconds(30);

// Puts the cells into the table at `path`, or into a new one where there is no such file, and
// replaces it whole: by renaming a new file, under a lock on FILE.lock beside it, which stays. A
// path that is a symbolic link is that of what it leads to. Blocks; `wait` is for the lock.
// Nothing is replaced on failure: DEADLINE_EXCEEDED, somebody else holds the lock; what
// PathTable::Read says of a table that cannot be read, and what the file system does.
absl::Status AddToPathTable(const std::string& path, absl::Span<const PathCell> cells,
                            absl::Duration wait = kPathTableLockWait);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_PATH_TABLE_UPDATE_H_
