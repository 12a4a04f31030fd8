// One rank's data path on the CUDA backend. Operations are asynchronous: a call checks its
// arguments, queues kernels on the rank's own stream and returns; no kernel of a step waits for the
// host. Synchronize tells what became of them.
#ifndef PERIGEE_KERNELS_CUDA_CUDA_DATA_PATH_H_
#define PERIGEE_KERNELS_CUDA_CUDA_DATA_PATH_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/sm_budget.h"

namespace perigee {

// Errors as CheckDataPathOptions (kernels/rank/argument_checks.h) and CheckFreshShard, and those of
// device memory.
absl::StatusOr<std::unique_ptr<DataPath>> CreateCudaDataPath(int device,
                                                             const DataPathOptions& options,
                                                             std::unique_ptr<SmBudget::Share> sms);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_CUDA_DATA_PATH_H_
