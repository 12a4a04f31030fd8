// One rank's data path on the host backend: checks its options once and hands each operation to the
// file that implements it.
#ifndef PERIGEE_KERNELS_HOST_HOST_DATA_PATH_H_
#define PERIGEE_KERNELS_HOST_HOST_DATA_PATH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/host/host_backend_options.h"

namespace perigee {

// INVALID_ARGUMENT, naming what was wrong, for options that cannot be; also where this rank's shard
// has been used by an earlier data path: its words would let the first barriers pass unmet.
absl::StatusOr<std::unique_ptr<DataPath>> CreateHostDataPath(const DataPathOptions& options,
                                                             const HostBackendOptions& backend);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_HOST_DATA_PATH_H_
