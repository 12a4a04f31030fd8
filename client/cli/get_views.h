// Workers, groups, buffers and generations as people and programs see them: a row of a table, a
// list of facts, JSON (docs/cli.md names its keys). Names of sockets are left out: whoever may
// connect is told them by the coordinator.
#ifndef PERIGEE_CLIENT_CLI_GET_VIEWS_H_
#define PERIGEE_CLIENT_CLI_GET_VIEWS_H_

#include <string>
#include <utility>
#include <vector>

#include "client/cli/output.h"
#include "proto/v1/buffers.pb.h"
#include "proto/v1/groups.pb.h"
#include "proto/v1/publication.pb.h"
#include "proto/v1/topology.pb.h"

namespace perigee {

using Facts = std::vector<std::pair<std::string, std::string>>;

// The argument only chooses the kind.
std::vector<std::string> TableHeader(const v1::Worker&);
std::vector<std::string> TableHeader(const v1::Group&);
std::vector<std::string> TableHeader(const v1::Buffer&);
std::vector<std::string> TableHeader(const v1::GenerationInfo&);

std::vector<std::string> TableRow(const v1::Worker& worker);
std::vector<std::string> TableRow(const v1::Group& group);
std::vector<std::string> TableRow(const v1::Buffer& buffer);
std::vector<std::string> TableRow(const v1::GenerationInfo& generation);

// Facts that are not there, such as the group of a worker without one, are left out.
Facts FactsOf(const v1::Worker& worker);
Facts FactsOf(const v1::Group& group);
Facts FactsOf(const v1::Buffer& buffer);
Facts FactsOf(const v1::GenerationInfo& generation);

// Every key is always there; what is not known is null.
void WriteJson(const v1::Worker& worker, JsonWriter& json);
void WriteJson(const v1::Group& group, JsonWriter& json);
void WriteJson(const v1::Buffer& buffer, JsonWriter& json);
void WriteJson(const v1::GenerationInfo& generation, JsonWriter& json);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_GET_VIEWS_H_
