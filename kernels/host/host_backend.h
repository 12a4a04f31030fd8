// The backend of any Linux machine: ranks are threads or processes of one host that share memfd
// memory. It runs the data path's operations as loops over kernels/algo; waits sleep on a futex.
#ifndef PERIGEE_KERNELS_HOST_HOST_BACKEND_H_
#define PERIGEE_KERNELS_HOST_HOST_BACKEND_H_

#include <memory>

#include "kernels/backend.h"
#include "kernels/host/host_backend_options.h"

namespace perigee {

// Never null. Memory and data paths made from the backend do not need it any more.
std::unique_ptr<Backend> CreateHostBackend(const HostBackendOptions& options = {});

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_HOST_BACKEND_H_
