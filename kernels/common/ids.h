// The small integers that date and place things, each a type of its own so that one cannot be
// passed for another. Plain and trivially copyable: they lie in shared memory and travel to
// kernels.
#ifndef PERIGEE_KERNELS_COMMON_IDS_H_
#define PERIGEE_KERNELS_COMMON_IDS_H_

#include <compare>
#include <cstdint>
#include <utility>

#include "kernels/common/host_device.h"

namespace perigee {

template <typename Tag, typename Rep>
struct StrongInt {
  using rep = Rep;
  Rep value = 0;

  constexpr StrongInt() = default;
  PERIGEE_HOST_DEVICE explicit constexpr StrongInt(Rep v) : value(v) {}
  friend constexpr auto operator<=>(const StrongInt&, const StrongInt&) = default;
  PERIGEE_HOST_DEVICE constexpr StrongInt Next() const { return StrongInt(value + 1); }

  template <typename H>
  friend H AbslHashValue(H h, const StrongInt& id) {
    return H::combine(std::move(h), id.value);
  }
};

// Index of a worker in a group, in [0, R).
using RankId = StrongInt<struct RankIdTag, int32_t>;
// A global expert, in [0, E).
using ExpertId = StrongInt<struct ExpertIdTag, int32_t>;
// One life of a group, from the coordinator's durable counter. Never reused; 0 is no generation.
using Generation = StrongInt<struct GenerationTag, uint64_t>;
// Number of a collective operation of one buffer inside a generation, equal on all ranks; the first
// is 1.
using Sequence = StrongInt<struct SequenceTag, uint64_t>;
// A buffer of a group: a number from the coordinator's durable counter, never reused.
using BufferId = StrongInt<struct BufferIdTag, uint64_t>;

// Identity of everything an operation makes: what buffer, which life of it, which operation. Before
// a launch the identity of every object an operation uses is compared with what lives now.
struct ObjectTag {
  BufferId buffer;
  Generation generation;
  Sequence sequence;
  friend constexpr bool operator==(const ObjectTag&, const ObjectTag&) = default;
};
static_assert(sizeof(ObjectTag) == 24);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_COMMON_IDS_H_
