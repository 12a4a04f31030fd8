// Whether a coordinator and workers of this machine can talk.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_NETWORK_CHECKS_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_NETWORK_CHECKS_H_

#include <vector>

#include "client/cli/doctor/finding.h"
#include "client/cli/doctor/network_facts.h"

namespace perigee {

// loopback, coordinator_address, and where PERIGEE_ADDRESS is set: perigee_address.
std::vector<Finding> CheckNetwork(const NetworkFacts& facts);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_NETWORK_CHECKS_H_
