// The files of a local cluster: sockets always in a temporary directory (the path of a Unix socket
// must be short), data and logs beside them or, where the user names a directory, there for good.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_RUN_DIRECTORY_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_RUN_DIRECTORY_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/local/file_descriptor.h"

namespace perigee {

class RunDirectory {
 public:
  // kept: where data and logs stay; made if missing; empty: nothing stays. UNAVAILABLE: another
  // cluster uses `kept`.
  static absl::StatusOr<RunDirectory> Create(const std::string& kept);
  // Removes a temporary directory with all that is in it, whether it is there or not.
  static void Remove(const std::string& temporary);

  const std::string& temporary() const { return temporary_; }
  std::string socket_dir() const { return temporary_ + "/sockets"; }
  std::string data_dir() const { return durable_ + "/data"; }
  std::string LogPath(const std::string& name) const { return durable_ + "/logs/" + name + ".log"; }
  // Removes the sockets that a worker has left behind.
  void RemoveSockets(const std::string& name) const;

 private:
  RunDirectory() = default;

  std::string temporary_;
  std::string durable_;
  FileDescriptor lock_;  // of `kept`, while this lives
};

// What temporary directories are made in: TMPDIR, unless it is relative or too long for the paths
// of sockets below it; else /tmp.
std::string RunDirectoryParent();

// The last line that is not empty of a log file, or "" if there is none.
std::string LastLine(const std::string& path);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_RUN_DIRECTORY_H_
