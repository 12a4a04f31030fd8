// What a test says to the processes of its ranks (rank_process.h, rank_server.h) and what they
// answer: plain structs, one per message, a reply to each command.
#ifndef PERIGEE_TESTS_DEVICE_RANK_WIRE_H_
#define PERIGEE_TESTS_DEVICE_RANK_WIRE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "kernels/layout/geometry.h"
#include "kernels/layout/operation.h"

namespace perigee {

// Ends a child that hangs, whatever happens to the test.
inline constexpr unsigned kChildLimitSeconds = 120;
// Memory that a rank shares with its peers: its shard, and a plain block that no operation uses.
inline constexpr size_t kPartsOfRank = 2;

enum class RankVerb : uint32_t {
  kAllocate,     // shard and extra_bytes of shared memory; their descriptors come with the reply
  kMap,          // descriptors [R][2] come with it: maps the peers' memory (milliseconds: this
                 // alone), creates the data path
  kCheckRounds,  // `count` rounds of dispatch and combine, all that they give checked
  kStartLoop,   // rounds until one fails, `count` queued at a time; replies after the first of them
  kAwaitLoop,   // waits for the loop's end and replies with its error
  kAbort,       // Abort(lost_rank), then as kAwaitLoop; milliseconds: from the call to the end
  kDispatch,    // one dispatch; milliseconds: from the call to its end
  kWorkAlone,   // private memory, copies, and a round in a group of one rank
  kDropPath,    // ends the data path
  kUnmap,       // the memory of `rank`; milliseconds: how long that took
  kDropAll,     // the data path, all mappings and the own memory
  kReadMemory,  // free_bytes of the device
  kAwaitMemory,  // waits until the device has free_bytes; milliseconds: how long that took
  kFill,         // the own memory with a pattern of canaries
  kCheckFill,    // that no byte of it has changed
  kScribble,     // over the memory of all peers, by the mappings of it
  kQuit,         // drops all and ends after the reply
};

struct RankCommand {
  RankVerb verb = RankVerb::kQuit;
  int32_t rank = -1;  // of the process in the group to form, or as the verb says
  Geometry geometry;
  int32_t hidden = 0;
  int32_t count = 1;
  int32_t lost_rank = -1;
  uint64_t seed = 0;  // of the rounds' input, the same for all ranks
  uint64_t generation = 0;
  uint64_t extra_bytes = 0;
  uint64_t free_bytes = 0;
  int64_t timeout_ms = 0;  // of operations
};

struct RankReply {
  int32_t code = 0;  // absl::StatusCode
  bool has_record = false;
  char text[512] = "";
  ErrorRecord record;  // last_error() of the data path
  double milliseconds = 0;
  uint64_t free_bytes = 0;
};

template <typename Message>
std::string BytesOf(const Message& message) {
  static_assert(std::is_trivially_copyable_v<Message>);
  return std::string(reinterpret_cast<const char*>(&message), sizeof(message));
}

// False where the size is another.
template <typename Message>
bool ParseMessage(const std::string& bytes, Message& message) {
  static_assert(std::is_trivially_copyable_v<Message>);
  if (bytes.size() != sizeof(message)) return false;
  std::memcpy(&message, bytes.data(), sizeof(message));
  return true;
}

}  // namespace perigee

#endif  // PERIGEE_TESTS_DEVICE_RANK_WIRE_H_
