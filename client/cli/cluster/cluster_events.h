// What happens to a local cluster, said to people.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_CLUSTER_EVENTS_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_CLUSTER_EVENTS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "client/cli/cluster/supervisor_event.h"

namespace perigee {

// "worker w5 was killed by signal 9 (Killed); starting it again"; empty for what needs no word.
std::string DescribeClusterEvent(const SupervisorEvent& event);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_CLUSTER_EVENTS_H_
