// Which coordinator a command speaks to.
#ifndef PERIGEE_CLIENT_CLI_COORDINATOR_ADDRESS_H_
#define PERIGEE_CLIENT_CLI_COORDINATOR_ADDRESS_H_

#include <string>

namespace perigee {

// `flag` (the value of --address) unless it is empty, else what kAddressVariable holds; empty where
// neither is given.
std::string CoordinatorAddress(const std::string& flag);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_COORDINATOR_ADDRESS_H_
