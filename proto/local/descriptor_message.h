// What two workers say to each other when one fetches the memory descriptors of the other's part of
// a buffer. Plain fixed-size structs, one per message; the descriptors travel beside the replies,
// one per part and in order. Nothing in a reply names a handle.
#ifndef PERIGEE_PROTO_LOCAL_DESCRIPTOR_MESSAGE_H_
#define PERIGEE_PROTO_LOCAL_DESCRIPTOR_MESSAGE_H_

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace perigee {

inline constexpr uint32_t kDescriptorRequestMagic = 0x50475251;  // "PGRQ"
inline constexpr uint32_t kDescriptorReplyMagic = 0x50475250;    // "PGRP"
// Parts that one reply describes; a buffer with more is answered by several replies.
inline constexpr uint32_t kPartsPerReply = 64;
// Parts of one buffer: the two of its shard, one home block per layer, its gradients and its
// source.
inline constexpr uint32_t kMaxParts = 1028;
inline constexpr size_t kTicketBytes = 16;

using Ticket = std::array<uint8_t, kTicketBytes>;

enum class PartKind : uint32_t {
  kShard = 1,      // the words of the shard, mapped for reading and writing
  kHomeBlock = 2,  // one layer's home weights, mapped for reading only
  kShardRows = 3,  // rows and row weights of the shard, mapped for reading and writing
  kGradients = 4,  // slot gradients and those of own experts, mapped for reading only
  kSource = 5,     // the source shard, mapped for reading only
};

struct DescriptorRequest {
  uint32_t magic = kDescriptorRequestMagic;
  uint32_t abi = 0;         // kDataPathAbi of the requester
  uint64_t group_hash = 0;  // HashGroupName
  uint64_t generation = 0;
  uint64_t buffer = 0;
  uint64_t requester_incarnation = 0;
  uint64_t exporter_incarnation = 0;
  int32_t requester_rank = -1;
  int32_t exporter_rank = -1;
  Ticket ticket{};
};
static_assert(sizeof(DescriptorRequest) == 72);

struct PartDescription {
  uint32_t kind = 0;   // PartKind
  int32_t layer = -1;  // of a home block
  uint64_t size_bytes = 0;
  friend constexpr bool operator==(const PartDescription&, const PartDescription&) = default;
};
static_assert(sizeof(PartDescription) == 16);

struct DescriptorReply {
  uint32_t magic = kDescriptorReplyMagic;
  uint32_t code = 0;        // absl::StatusCode; all below is 0 unless OK
  uint32_t part_count = 0;  // of the whole buffer
  uint32_t first_part = 0;  // of this reply
  uint32_t parts_here = 0;  // in this reply; as many descriptors come with it
  uint32_t reserved = 0;
  PartDescription parts[kPartsPerReply] = {};
};
static_assert(sizeof(DescriptorReply) == 24 + 16 * kPartsPerReply);

// FNV-1a of tenants/{t}/groups/{g}: generations are unique, so this only catches a mix-up.
uint64_t HashGroupName(absl::string_view group);

template <typename Message>
std::string ToBytes(const Message& message) {
  static_assert(std::is_trivially_copyable_v<Message>);
  return std::string(reinterpret_cast<const char*>(&message), sizeof(message));
}

// INVALID_ARGUMENT: wrong size or magic. Everything else is the receiver's to judge.
absl::StatusOr<DescriptorRequest> ParseDescriptorRequest(absl::string_view bytes);
// INVALID_ARGUMENT: wrong size or magic, counts out of bounds, or an OK reply without parts.
absl::StatusOr<DescriptorReply> ParseDescriptorReply(absl::string_view bytes);

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_DESCRIPTOR_MESSAGE_H_
