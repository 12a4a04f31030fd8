#include "proto/local/descriptor_message.h"

#include "absl/strings/str_cat.h"
#include "proto/local/fixed_message.h"

namespace perigee {

uint64_t HashGroupName(absl::string_view group) {
  uint64_t hash = 14695981039346656037ull;
  for (const char c : group) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return hash;
}

absl::StatusOr<DescriptorRequest> ParseDescriptorRequest(absl::string_view bytes) {
  return ParseFixedMessage<DescriptorRequest>(bytes, kDescriptorRequestMagic, "descriptor request");
}

absl::StatusOr<DescriptorReply> ParseDescriptorReply(absl::string_view bytes) {
  absl::StatusOr<DescriptorReply> reply =
      ParseFixedMessage<DescriptorReply>(bytes, kDescriptorReplyMagic, "descriptor reply");
  if (!reply.ok() || reply->code != 0) return reply;
  const bool counts_fit = reply->part_count >= 1 && reply->part_count <= kMaxParts &&
                          reply->parts_here >= 1 && reply->parts_here <= kPartsPerReply &&
                          reply->first_part < reply->part_count &&
                          reply->parts_here <= reply->part_count - reply->first_part;
  if (!counts_fit) {
    return absl::InvalidArgumentError(absl::StrCat("descriptor reply with parts ",
                                                   reply->first_part, " + ", reply->parts_here,
                                                   " of ", reply->part_count));
  }
  return reply;
}

}  // namespace perigee
