// Fetches the descriptors of a peer's part of a buffer from its socket.
#ifndef PERIGEE_WORKER_MEMORY_DESCRIPTOR_CLIENT_H_
#define PERIGEE_WORKER_MEMORY_DESCRIPTOR_CLIENT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/local/descriptor_message.h"
#include "proto/local/file_descriptor.h"
#include "proto/local/wait_limit.h"

namespace perigee {

// One descriptor per entry of `expected`, in its order. Blocks, within the limit.
// PERMISSION_DENIED: the peer refused the ticket (it is spent) or is of another user;
// INVALID_ARGUMENT: it answered with something else than expected; UNAVAILABLE: it is not there;
// DEADLINE_EXCEEDED; CANCELLED.
absl::StatusOr<std::vector<FileDescriptor>> FetchDescriptors(
    const std::string& socket_path, const DescriptorRequest& request,
    absl::Span<const PartDescription> expected, const WaitLimit& limit);

}  // namespace perigee

#endif  // PERIGEE_WORKER_MEMORY_DESCRIPTOR_CLIENT_H_
