// What a session is told about its ranks and about the tickets between them, checked.
#ifndef PERIGEE_WORKER_SESSION_SESSION_MEMBERS_H_
#define PERIGEE_WORKER_SESSION_SESSION_MEMBERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/repeated_field.h"
#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "proto/local/descriptor_message.h"
#include "proto/v1/command.pb.h"
#include "worker/memory/buffer_shape.h"

namespace perigee {

// INVALID_ARGUMENT unless it is 16 hex digits.
absl::StatusOr<uint64_t> ParseIncarnation(absl::string_view text);

// INVALID_ARGUMENT unless the members are ranks 0 to R - 1 in order, each complete, and the
// command's rank is one of them; FAILED_PRECONDITION, naming both, unless that rank is `worker` at
// `incarnation`.
absl::Status CheckMembers(const v1::OpenSessionCommand& command, absl::string_view worker,
                          uint64_t incarnation);

// Of nvlink (or empty) and nccl; INVALID_ARGUMENT for any other.
absl::StatusOr<Transport> ParseTransport(absl::string_view name);
// As of v1::TransportCounts: "nccl"; "local" of a rank alone, and on the host; else "nvlink".
std::string TransportInWords(Transport transport, size_t ranks, const BackendInfo& backend);
// INVALID_ARGUMENT for a shape that cannot run over this transport.
absl::Status CheckShapeFor(Transport transport, const BufferShape& shape);

// [R] 16 bytes each, but for the own rank's, which is empty (all zero in the result).
// INVALID_ARGUMENT.
absl::StatusOr<std::vector<Ticket>> ParseTickets(
    const google::protobuf::RepeatedPtrField<std::string>& tickets, int32_t ranks, RankId own);

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_SESSION_MEMBERS_H_
