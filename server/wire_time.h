// absl's times as the protobuf messages that carry them.
#ifndef PERIGEE_SERVER_WIRE_TIME_H_
#define PERIGEE_SERVER_WIRE_TIME_H_

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace perigee {

inline google::protobuf::Timestamp ToWire(absl::Time time) {
  const timespec value = absl::ToTimespec(time);
  google::protobuf::Timestamp message;
  message.set_seconds(value.tv_sec);
  message.set_nanos(static_cast<int32_t>(value.tv_nsec));
  return message;
}

inline google::protobuf::Duration ToWire(absl::Duration duration) {
  const timespec value = absl::ToTimespec(duration);
  google::protobuf::Duration message;
  message.set_seconds(value.tv_sec);
  message.set_nanos(static_cast<int32_t>(value.tv_nsec));
  return message;
}

}  // namespace perigee

#endif  // PERIGEE_SERVER_WIRE_TIME_H_
