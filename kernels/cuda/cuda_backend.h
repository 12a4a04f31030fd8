// The backend of an NVIDIA GPU: ranks are processes (or threads) that share device memory by
// descriptors and store into each other's shards over NVLink, or within one GPU in tests.
#ifndef PERIGEE_KERNELS_CUDA_CUDA_BACKEND_H_
#define PERIGEE_KERNELS_CUDA_CUDA_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/staged/peer_exchange.h"

namespace perigee {

// What data paths over Transport::kNccl exchange bytes by in tests, instead of NCCL.
struct ExchangeFactory {
  std::function<std::string()> new_rendezvous;
  // `settle` waits for what the rank has queued.
  std::function<std::unique_ptr<PeerExchange>(const DataPathOptions& options,
                                              std::function<absl::Status()> settle)>
      create;
};

struct CudaBackendOptions {
  int device = 0;
  std::string memory_handle = "auto";  // auto | fd | fabric (kernels/device/handle_kinds.h)
  int32_t sms_per_buffer = 16;
  // SMs that this backend's buffers may reserve in all; 0: all of the device's. Workers that share
  // a GPU get a part each.
  int32_t sm_budget = 0;
  // Null: NCCL.
  std::shared_ptr<const ExchangeFactory> exchange = nullptr;
};

// FAILED_PRECONDITION, saying what is there instead, without a usable device or in a binary built
// without CUDA; INVALID_ARGUMENT for options that cannot be. Memory and data paths made from the
// backend do not need it any more. Kernels are loaded here: a later load would wait for kernels
// that wait for peers.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendOptions& options = {});

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_CUDA_BACKEND_H_
