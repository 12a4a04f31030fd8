#include "client/cli/cluster/cluster_events.h"

#include "absl/strings/str_cat.h"

namespace perigee {

std::string DescribeClusterEvent(const SupervisorEvent& event) {
  switch (event.kind) {
    case SupervisorEvent::Kind::kWorker:
      return absl::StrCat("worker ", event.name, " serves at ", event.address, ", pid ", event.pid);
    case SupervisorEvent::Kind::kLost:
      return absl::StrCat("worker ", event.name, " ", event.text);
    case SupervisorEvent::Kind::kFailed:
      return event.text;
    default:
      return "";
  }
}

}  // namespace perigee
