// Where the processes of a cluster find each other: the programs, and the directory with their
// sockets.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_PLACE_FACTS_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_PLACE_FACTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "client/cli/cluster/program_paths.h"

namespace perigee {

struct PlaceFacts {
  absl::StatusOr<ProgramPaths> programs = absl::UnknownError("not looked for");
  std::string wanted;  // the environment's TMPDIR; empty: none
  std::string parent;  // what run directories are made in
  absl::Status made;   // of one, private to this user
  uint64_t free_bytes = 0;
  // Others may write there and may rename what is not theirs: no sticky bit.
  bool unprotected = false;
  size_t socket_path_bytes = 0;  // of the longest that a worker of `up` listens at
  absl::Status socket;           // of listening at one so long, and of connecting to it
};

// Makes a run directory and removes it.
PlaceFacts GatherPlaceFacts();

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_PLACE_FACTS_H_
