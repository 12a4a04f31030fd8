#include "proto/local/descriptor_message.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

template <typename Message>
absl::StatusOr<Message> Parse(absl::string_view bytes, uint32_t magic, absl::string_view what) {
  Message message;
  if (bytes.size() != sizeof(message)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", bytes.size(), " bytes, expected ", sizeof(message)));
  }
  std::memcpy(&message, bytes.data(), sizeof(message));
  if (message.magic != magic) {
    return absl::InvalidArgumentError(absl::StrCat(what, " begins with ", absl::Hex(message.magic),
                                                   ", expected ", absl::Hex(magic)));
  }
  return message;
}

}  // namespace

uint64_t HashGroupName(absl::string_view group) {
  uint64_t hash = 14695981039346656037ull;
  for (const char c : group) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211ull;
  return hash;
}

absl::StatusOr<DescriptorRequest> ParseDescriptorRequest(absl::string_view bytes) {
  return Parse<DescriptorRequest>(bytes, kDescriptorRequestMagic, "descriptor request");
}

absl::StatusOr<DescriptorReply> ParseDescriptorReply(absl::string_view bytes) {
  absl::StatusOr<DescriptorReply> reply =
      Parse<DescriptorReply>(bytes, kDescriptorReplyMagic, "descriptor reply");
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
