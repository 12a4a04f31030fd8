#include "client/cli/coordinator_address.h"

#include <cstdlib>

#include "proto/support/defaults.h"

namespace perigee {

std::string CoordinatorAddress(const std::string& flag) {
  if (!flag.empty()) return flag;
  const char* variable = std::getenv(kAddressVariable);
  return variable == nullptr ? "" : variable;
}

}  // namespace perigee
