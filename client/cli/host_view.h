// Hosts as the workers on them describe them: which GPUs, and how these are linked.
#ifndef PERIGEE_CLIENT_CLI_HOST_VIEW_H_
#define PERIGEE_CLIENT_CLI_HOST_VIEW_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/output.h"
#include "proto/v1/topology.pb.h"

namespace perigee {

struct HostView {
  std::string name;                 // hosts/{h}
  std::vector<v1::Worker> workers;  // in order of name, lost ones left out
};

// All hosts that workers are on, in order of name, or the one asked for. NOT_FOUND names those that
// there are.
absl::StatusOr<std::vector<HostView>> HostsOf(const std::vector<v1::Worker>& workers,
                                              const std::string& name);

std::vector<std::string> TableHeader(const HostView&);
std::vector<std::string> TableRow(const HostView& host);
// A worker a line, and whether its GPU reaches those of the others.
std::string DescribeHost(const HostView& host);
void WriteJson(const HostView& host, JsonWriter& json);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_HOST_VIEW_H_
