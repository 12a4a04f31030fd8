#include "server/groups/fatal_status.h"

#include "server/groups/lost_command.h"

namespace perigee {

bool EndsGeneration(const v1::RankStatus& status) {
  return status.reason() == "DEADLINE" || status.reason() == "OUT_OF_STEP" ||
         status.reason() == "GENERATION_ABORTED" || status.reason() == "CLIENT_LOST" ||
         status.reason() == kReasonCommandLost;
}

}  // namespace perigee
