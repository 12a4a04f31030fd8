// What a new buffer may look like.
#ifndef PERIGEE_SERVER_GROUPS_BUFFER_SHAPE_H_
#define PERIGEE_SERVER_GROUPS_BUFFER_SHAPE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/v1/buffers.pb.h"

namespace perigee {

// The shape with its defaults filled in, for a group of `ranks`. INVALID_ARGUMENT naming the value
// and what was expected.
absl::StatusOr<v1::BufferShape> CompleteShape(const v1::BufferShape& shape, int32_t ranks);

// INVALID_ARGUMENT naming the one that is not in [0, 1 hour].
absl::Status CheckTimeouts(int64_t operation_ms, int64_t warmup_ms);

// INVALID_ARGUMENT where one is negative; whether a device has so many is for the workers to say.
absl::Status CheckSms(int32_t sms, int32_t local_sms);

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_BUFFER_SHAPE_H_
