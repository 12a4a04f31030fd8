// Owner-sharded source on the host backend. Contracts: kernels/owner_source.h.
//
// 1. PrepareSource: what is to be stored is; as steps 1 to 3 of a dispatch (dispatch.h); then each
//    rank writes where its
//    routes go into its own source shard. Exit barrier: all have. Each rank reads all ranks'
//    destinations and keeps those that are here: with them its plan is complete.
// 2. Materialise: entry barrier; each rank copies rows from their owners into its own shard and
//    zeroes its padding. Exit barrier: all have read.
#ifndef PERIGEE_KERNELS_HOST_OWNER_SOURCE_H_
#define PERIGEE_KERNELS_HOST_OWNER_SOURCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/host/host_rank.h"
#include "kernels/owner_source.h"

namespace perigee {

absl::StatusOr<SourcePtr> HostPrepareSource(HostRank& rank, Sequence sequence,
                                            const SourceInput& input);
absl::StatusOr<PlanPtr> HostMaterialise(HostRank& rank, Sequence sequence, const SourcePtr& source,
                                        const DispatchOutput& output);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_OWNER_SOURCE_H_
