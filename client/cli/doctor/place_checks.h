// Whether a cluster's programs are there, and a directory for its sockets.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_PLACE_CHECKS_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_PLACE_CHECKS_H_

#include <vector>

#include "client/cli/doctor/finding.h"
#include "client/cli/doctor/place_facts.h"

namespace perigee {

// programs, run_directory, and where one can be made: run_directory_space, socket_path.
std::vector<Finding> CheckPlaces(const PlaceFacts& facts);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_PLACE_CHECKS_H_
