// A PeerExchange between ranks of one process, through host memory: what staged data paths are
// tested with where there is no NCCL, or fewer GPUs than ranks.
#ifndef PERIGEE_TESTS_CONTRACT_LOCAL_EXCHANGE_H_
#define PERIGEE_TESTS_CONTRACT_LOCAL_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/staged/peer_exchange.h"

namespace perigee {

// A name that no other call gives.
std::string NewLocalRendezvous();

// How one rank's memory is read and written from the host.
struct LocalCopies {
  std::function<absl::Status(absl::Span<std::byte> to, const std::byte* from)> read;
  std::function<absl::Status(std::byte* to, absl::Span<const std::byte> from)> write;
  // Waits for what the rank has queued.
  std::function<absl::Status()> settle;
};

std::unique_ptr<PeerExchange> MakeLocalExchange(const std::string& rendezvous, int32_t rank,
                                                LocalCopies copies);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_LOCAL_EXCHANGE_H_
