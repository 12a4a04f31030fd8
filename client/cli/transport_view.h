// What ranks have sent over their transport, and what has failed there, as people and programs see
// it, and in the text format that Prometheus reads.
#ifndef PERIGEE_CLIENT_CLI_TRANSPORT_VIEW_H_
#define PERIGEE_CLIENT_CLI_TRANSPORT_VIEW_H_

#include <string>
#include <utility>
#include <vector>

#include "client/cli/output.h"
#include "proto/v1/topology.pb.h"

namespace perigee {

// None where the worker has said nothing of it.
std::vector<std::pair<std::string, std::string>> TransportFacts(const v1::Worker& worker);
// The key transport_counts; null likewise.
void WriteTransportCounts(const v1::Worker& worker, JsonWriter& json);

// Of every worker that has said something, exposition format 0.0.4: each metric with its help and
// type, and a line for each value.
std::string MetricsText(const std::vector<v1::Worker>& workers);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_TRANSPORT_VIEW_H_
