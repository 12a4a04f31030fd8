// Ctrl-C and SIGTERM as something to wait for instead of something that ends the process.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_INTERRUPT_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_INTERRUPT_H_

#include "absl/status/statusor.h"
#include "proto/local/file_descriptor.h"

namespace perigee {

// Blocks both signals in this thread and those it starts from now on; the descriptor is readable
// when one has come.
absl::StatusOr<FileDescriptor> TakeInterrupts();
// Takes one signal off the descriptor; whether there was one. Never blocks.
bool TookInterrupt(int fd);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_INTERRUPT_H_
