#include "proto/local/attach_message.h"

#include "absl/strings/str_cat.h"
#include "proto/local/fixed_message.h"

namespace perigee {

absl::StatusOr<AttachRequest> ParseAttachRequest(absl::string_view bytes) {
  return ParseFixedMessage<AttachRequest>(bytes, kAttachRequestMagic, "attach request");
}

absl::StatusOr<AttachReply> ParseAttachReply(absl::string_view bytes) {
  absl::StatusOr<AttachReply> reply =
      ParseFixedMessage<AttachReply>(bytes, kAttachReplyMagic, "attach reply");
  if (!reply.ok() || reply->code != 0) return reply;
  for (size_t part = 0; part < kAttachParts; ++part) {
    if (reply->size_bytes[part] > 0) continue;
    if (part >= static_cast<size_t>(AttachPart::kGradients)) continue;
    return absl::InvalidArgumentError(absl::StrCat("attach reply with an empty part ", part));
  }
  const uint64_t shard_bytes = reply->size_bytes[static_cast<size_t>(AttachPart::kShardRows)];
  if (reply->peers > kMaxAttachPeers) {
    return absl::InvalidArgumentError(absl::StrCat("attach reply with rows of ", reply->peers,
                                                   " peers, expected at most ", kMaxAttachPeers));
  }
  if (reply->device_uuid[kDeviceUuidBytes - 1] != '\0') {
    return absl::InvalidArgumentError("attach reply with a device whose name does not end");
  }
  if (reply->source_access[kAccessBytes - 1] != '\0') {
    return absl::InvalidArgumentError("attach reply with words of access that do not end");
  }
  if (reply->rows_offset < shard_bytes && reply->row_weights_offset < shard_bytes) return reply;
  return absl::InvalidArgumentError(absl::StrCat("attach reply with rows at ", reply->rows_offset,
                                                 " and weights at ", reply->row_weights_offset,
                                                 " of a shard of ", shard_bytes, " bytes"));
}

absl::StatusOr<DetachMessage> ParseDetachMessage(absl::string_view bytes) {
  return ParseFixedMessage<DetachMessage>(bytes, kDetachMagic, "detach message");
}

std::vector<AttachPart> PartsOf(const AttachReply& reply) {
  std::vector<AttachPart> parts;
  for (size_t part = 0; part < kAttachParts; ++part) {
    if (reply.size_bytes[part] > 0) parts.push_back(static_cast<AttachPart>(part));
  }
  return parts;
}

}  // namespace perigee
