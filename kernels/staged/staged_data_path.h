// The data path of ranks that cannot load and store each other's memory (Transport::kNccl): rows
// are packed, sent, received into a staging area and put in their places there, with the same
// results as where ranks store into each other's shards, to the bit.
//
// Every rank gets the routes of all and plans for all of them, on the host: so it knows which rows
// come from where without being told. Operations have ended when their calls return. The staging
// area takes 2 * S * min(K, R) rows.
#ifndef PERIGEE_KERNELS_STAGED_STAGED_DATA_PATH_H_
#define PERIGEE_KERNELS_STAGED_STAGED_DATA_PATH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/staged/peer_exchange.h"
#include "kernels/staged/staged_device.h"

namespace perigee {

// The device's shape was made of options that CheckDataPathOptions has accepted. Of shards, home
// blocks and slot gradients only the rank's own are touched; its peers' may be any address.
absl::StatusOr<std::unique_ptr<DataPath>> CreateStagedDataPath(
    std::unique_ptr<StagedDevice> device, std::unique_ptr<PeerExchange> exchange);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_STAGED_STAGED_DATA_PATH_H_
