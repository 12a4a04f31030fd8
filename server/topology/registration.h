// Which registrations of workers are accepted.
#ifndef PERIGEE_SERVER_TOPOLOGY_REGISTRATION_H_
#define PERIGEE_SERVER_TOPOLOGY_REGISTRATION_H_

#include "absl/status/status.h"
#include "proto/v1/topology.pb.h"

namespace perigee {

// INVALID_ARGUMENT naming the field and what was expected; FAILED_PRECONDITION naming both numbers
// where the data-path ABI is not this coordinator's.
absl::Status CheckRegistration(const v1::Worker& worker);

}  // namespace perigee

#endif  // PERIGEE_SERVER_TOPOLOGY_REGISTRATION_H_
