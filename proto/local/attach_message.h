// What a local client and a worker say to each other over the attach socket: the client presents
// its ticket; with the reply come descriptors of what the two share. Plain fixed-size structs, one
// per message. After the reply the connection is the lease: it carries nothing but the client's
// word that it leaves, and its end is the attachment's.
#ifndef PERIGEE_PROTO_LOCAL_ATTACH_MESSAGE_H_
#define PERIGEE_PROTO_LOCAL_ATTACH_MESSAGE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/local/descriptor_message.h"

namespace perigee {

inline constexpr uint32_t kAttachRequestMagic = 0x50474151;  // "PGAQ"
inline constexpr uint32_t kAttachReplyMagic = 0x50474150;    // "PGAP"
inline constexpr uint32_t kDetachMagic = 0x50474144;         // "PGAD"

struct AttachRequest {
  uint32_t magic = kAttachRequestMagic;
  uint32_t abi = 0;         // kDataPathAbi of the client: of the arena's and the shard's layout
  uint64_t group_hash = 0;  // HashGroupName
  uint64_t generation = 0;
  uint64_t buffer = 0;
  uint64_t incarnation = 0;  // of the worker that the ticket names
  int32_t rank = -1;
  uint32_t page_version = 0;  // kCommandPageVersion of the client
  Ticket ticket{};
};
static_assert(sizeof(AttachRequest) == 64);

// The descriptors of a reply, in their order.
enum class AttachPart : uint32_t {
  kCommandPage = 0,  // a CommandPage
  kArena = 1,        // kernels/layout/client_arena.h
  kShardRows = 2,    // rows and row weights of the rank's shard (kernels/layout/shard_layout.h)
  kGradients = 3,  // the rank's gradients (kernels/layout/gradients_layout.h), where they are kept
  // The weights in the rank's slots (kernels/layout/weights_layout.h), where there are any; for
  // reading only.
  kSlots = 4,
  // The rank's source shard (kernels/layout/source_layout.h), where the buffer has source storage.
  kSource = 5,
};
inline constexpr size_t kAttachParts = 6;

// A group has 128 ranks at most (kernels/plan/validate.h).
inline constexpr uint32_t kMaxAttachPeers = 127;
// That come with a reply.
inline constexpr size_t kMaxAttachDescriptors = kAttachParts + kMaxAttachPeers;

// "GPU-" and 36 characters, and the zero at its end.
inline constexpr size_t kDeviceUuidBytes = 48;
// Of the words for what is legal on a mapping (kernels/mapping_access.h), and the zero.
inline constexpr size_t kAccessBytes = 40;

struct AttachReply {
  uint32_t magic = kAttachReplyMagic;
  uint32_t code = 0;                       // absl::StatusCode; all below is 0 unless OK
  uint64_t size_bytes[kAttachParts] = {};  // no descriptor comes for a part of 0 bytes
  // In the part of the rows, in bytes from its beginning.
  uint64_t rows_offset = 0;         // [NvS, H] bf16
  uint64_t row_weights_offset = 0;  // [NvS] fp32
  // R - 1 of a buffer with peer_store: behind the parts' descriptors come those of the rows of the
  // other ranks' shards, in order of rank, each of the size of the own; else 0.
  uint32_t peers = 0;
  uint32_t reserved = 0;
  // Of the GPU whose memory arena and rows are; empty: they are the host's.
  char device_uuid[kDeviceUuidBytes] = {};
  // What the client may do on the source shard; empty where there is none.
  char source_access[kAccessBytes] = {};
};
static_assert(sizeof(AttachReply) == 168);

struct DetachMessage {
  uint32_t magic = kDetachMagic;
};
static_assert(sizeof(DetachMessage) == 4);

// INVALID_ARGUMENT: wrong size or magic. Everything else is the receiver's to judge.
absl::StatusOr<AttachRequest> ParseAttachRequest(absl::string_view bytes);
// INVALID_ARGUMENT: wrong size or magic, or an OK reply whose parts, but for gradients, slots and
// the source, are empty, whose offsets lie outside of the rows' part, whose peers are more than
// there can be, or whose device or access has no end.
absl::StatusOr<AttachReply> ParseAttachReply(absl::string_view bytes);
absl::StatusOr<DetachMessage> ParseDetachMessage(absl::string_view bytes);
// Those that descriptors come for, in their order.
std::vector<AttachPart> PartsOf(const AttachReply& reply);

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_ATTACH_MESSAGE_H_
