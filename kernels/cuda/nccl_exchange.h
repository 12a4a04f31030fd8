// The exchange of a staged data path by NCCL, which is opened at run time.
#ifndef PERIGEE_KERNELS_CUDA_NCCL_EXCHANGE_H_
#define PERIGEE_KERNELS_CUDA_NCCL_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/device/stream.h"
#include "kernels/staged/peer_exchange.h"

namespace perigee {

// What the ranks of one communicator find each other by; this process stays until they have.
// NOT_FOUND where NCCL is not installed, UNIMPLEMENTED where it is too old.
absl::StatusOr<std::string> NewNcclRendezvous();

struct NcclExchangeOptions {
  std::string rendezvous;
  int32_t rank = 0;
  int32_t ranks = 0;
};

// On this stream, which outlives the exchange. The communicator is made by the first transfer,
// within the time that it may take. INVALID_ARGUMENT for what is no rendezvous.
absl::StatusOr<std::unique_ptr<PeerExchange>> CreateNcclExchange(const NcclExchangeOptions& options,
                                                                 const Stream& stream);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_NCCL_EXCHANGE_H_
