// What a rank keeps of the parts of a buffer that not every buffer has.
#ifndef PERIGEE_CLIENT_CLI_BUFFER_PARTS_H_
#define PERIGEE_CLIENT_CLI_BUFFER_PARTS_H_

#include <cstdint>

#include "absl/types/optional.h"
#include "proto/v1/buffers.pb.h"

namespace perigee {

// Bytes of one rank. None where the buffer has no such part, or, of gradients and slots, where no
// rank has told its bytes yet.
absl::optional<uint64_t> GradientBytes(const v1::Buffer& buffer);
absl::optional<uint64_t> SourceBytes(const v1::Buffer& buffer);
absl::optional<uint64_t> OutputSlotBytes(const v1::Buffer& buffer);  // of both rings

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BUFFER_PARTS_H_
