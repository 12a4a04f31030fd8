// The host backend with staged data paths: the logic of Transport::kNccl on machines without a GPU.
#ifndef PERIGEE_TESTS_CONTRACT_STAGED_HOST_BACKEND_H_
#define PERIGEE_TESTS_CONTRACT_STAGED_HOST_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace perigee {

// Its data paths are of Transport::kNccl, by a local exchange; ranks are threads of one process.
// host: what its memory is of; null: a host backend.
std::unique_ptr<Backend> MakeStagedHostBackend(std::unique_ptr<Backend> host = nullptr);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_STAGED_HOST_BACKEND_H_
