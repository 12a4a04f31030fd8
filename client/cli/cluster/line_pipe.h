// Pipes between processes of one command, and reading lines from them without blocking.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_LINE_PIPE_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_LINE_PIPE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/local/file_descriptor.h"

namespace perigee {

// Both ends close on exec.
struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};
// RESOURCE_EXHAUSTED: no more descriptors.
absl::StatusOr<Pipe> NewPipe();

// Cuts what comes out of a descriptor into lines. Not thread-safe.
class LineReader {
 public:
  LineReader() = default;
  // Owns the descriptor and makes it non-blocking.
  explicit LineReader(FileDescriptor fd);

  // The complete lines there are, without their newlines. Never blocks.
  std::vector<std::string> Read();
  // Nothing more will come: every writer has closed, or the descriptor failed.
  bool ended() const { return !fd_.valid(); }
  // For poll(); -1 once ended.
  int fd() const { return fd_.get(); }

 private:
  FileDescriptor fd_;
  std::string pending_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_LINE_PIPE_H_
