// How ranks that cannot load and store each other's memory move bytes: what one sends, another
// receives into memory of its own.
#ifndef PERIGEE_KERNELS_STAGED_PEER_EXCHANGE_H_
#define PERIGEE_KERNELS_STAGED_PEER_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace perigee {

// Both of at least one byte, in memory of the rank's backend.
struct Outgoing {
  int32_t to = 0;
  const std::byte* bytes = nullptr;
  size_t size_bytes = 0;
};
struct Incoming {
  int32_t from = 0;
  std::byte* bytes = nullptr;
  size_t size_bytes = 0;
};

// Asked again and again while a rank waits; any status but OK ends the wait, which returns it.
using KeepWaiting = std::function<absl::Status()>;

// One rank's end. Not thread-safe.
class PeerExchange {
 public:
  virtual ~PeerExchange() = default;

  // Sends and receives all at once, behind what the rank has queued on its device. The i-th that a
  // rank sends to another is the i-th that this one receives from it, of the same size; a rank may
  // send to itself. Returns when all that it sends may be changed and all that it receives is
  // there. After an error the exchange can do nothing more, and what has come is whole or absent
  // for each of the transfers.
  virtual absl::Status Transfer(absl::Span<const Outgoing> outgoing,
                                absl::Span<const Incoming> incoming,
                                const KeepWaiting& keep_waiting) = 0;

  // Whether the ranks have found each other: until then nobody knows who is missing.
  virtual bool joined() const { return true; }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_STAGED_PEER_EXCHANGE_H_
