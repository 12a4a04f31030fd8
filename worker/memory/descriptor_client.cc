#include "worker/memory/descriptor_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/local/unix_socket.h"

namespace perigee {
namespace {

absl::Status CheckReply(const DescriptorReply& reply, const SocketMessage& message, size_t have,
                        absl::Span<const PartDescription> expected) {
  if (reply.code != 0) return absl::PermissionDeniedError("the peer refused the ticket");
  if (reply.part_count != expected.size() || reply.first_part != have ||
      message.descriptors.size() != reply.parts_here) {
    return absl::InvalidArgumentError(
        absl::StrCat("the peer sent parts ", reply.first_part, " + ", reply.parts_here, " of ",
                     reply.part_count, " with ", message.descriptors.size(),
                     " descriptors; expected ", expected.size(), " parts, the next being ", have));
  }
  for (uint32_t i = 0; i < reply.parts_here; ++i) {
    const PartDescription& part = reply.parts[i];
    if (part == expected[have + i]) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the peer's part ", have + i, " has kind ", part.kind, ", layer ", part.layer, ", ",
        part.size_bytes, " bytes; expected kind ", expected[have + i].kind, ", layer ",
        expected[have + i].layer, ", ", expected[have + i].size_bytes, " bytes"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<FileDescriptor>> FetchDescriptors(
    const std::string& socket_path, const DescriptorRequest& request,
    absl::Span<const PartDescription> expected, const WaitLimit& limit) {
  absl::StatusOr<UnixSocket> socket = UnixSocket::Connect(socket_path, limit);
  if (!socket.ok()) return socket.status();
  if (absl::Status status = socket->Send(ToBytes(request), {}, limit); !status.ok()) return status;
  std::vector<FileDescriptor> descriptors;
  while (descriptors.size() < expected.size()) {
    absl::StatusOr<SocketMessage> message =
        socket->Receive(sizeof(DescriptorReply), kPartsPerReply, limit);
    if (!message.ok()) return message.status();
    absl::StatusOr<DescriptorReply> reply = ParseDescriptorReply(message->bytes);
    if (!reply.ok()) return reply.status();
    absl::Status status = CheckReply(*reply, *message, descriptors.size(), expected);
    if (!status.ok()) return status;
    for (FileDescriptor& fd : message->descriptors) descriptors.push_back(std::move(fd));
  }
  return descriptors;
}

}  // namespace perigee
