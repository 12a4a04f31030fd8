// Where a group's ranks go: a policy from a snapshot of the workers to a choice. Pure.
//
// All ranks of a group are on one host: peers fetch memory descriptors over a Unix socket.
#ifndef PERIGEE_SERVER_GROUPS_PLACEMENT_H_
#define PERIGEE_SERVER_GROUPS_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "proto/v1/topology.pb.h"

namespace perigee {

// The names of `ranks` READY workers of `backend`, by rank. `wanted` names them, by rank; empty:
// the first by name on the first host by name that has enough. `workers` in order of name.
// RESOURCE_EXHAUSTED: too few, with how many were needed and there. INVALID_ARGUMENT: wanted ones
// are not `ranks` different names; NOT_FOUND or FAILED_PRECONDITION: one of them is not known, not
// READY, of another backend or on another host.
absl::StatusOr<std::vector<std::string>> PlaceRanks(int32_t ranks, const std::string& backend,
                                                    const std::vector<std::string>& wanted,
                                                    const std::vector<v1::Worker>& workers);

// Whether workers of these names, by rank, can be a group over `transport`, as far as they have
// told of their GPUs. FAILED_PRECONDITION names two ranks: over nvlink, whose GPUs cannot use each
// other's memory; over nccl, that have one GPU.
absl::Status CheckLinks(const std::string& transport, const std::vector<std::string>& names,
                        const std::vector<v1::Worker>& workers);

// A rank's worker; as a request its name is that of the lost one.
struct RankWorker {
  int32_t rank = 0;
  std::string worker;
};

// What replacements have to get on with.
struct Survivors {
  std::string host = {};  // empty: none survives
  std::string transport = "nvlink";
  std::vector<std::string> workers = {};  // their names
};

// READY workers for `lost`, one for each rank, that CheckLinks takes with the survivors and each
// other: a new incarnation of the same name where there is one, else the first by name. None until
// there is a worker for every rank.
absl::optional<std::vector<RankWorker>> PlaceReplacements(const std::vector<RankWorker>& lost,
                                                          const std::string& backend,
                                                          const Survivors& survivors,
                                                          const std::vector<v1::Worker>& workers);

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_PLACEMENT_H_
