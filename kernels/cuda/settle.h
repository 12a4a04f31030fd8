// Waiting for what a rank has queued, and what became of it.
#ifndef PERIGEE_KERNELS_CUDA_SETTLE_H_
#define PERIGEE_KERNELS_CUDA_SETTLE_H_

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_rank.h"

namespace perigee {

// Waits, bounded by the operations' own timeouts and five minutes for what waits for no peer, until
// the stream is empty, without asking what became of the operations. DEADLINE_EXCEEDED where the
// device does not come to an end; DATA_LOSS where this process's CUDA context is lost.
absl::Status WaitForStream(CudaRank& rank);

// Waits, and returns the first error of the operations queued since the last call; last_error() is
// of the same operation. Operations queued behind a failed one have been declined in their turn
// where that was possible. After it, new operations can be queued if the generation goes on.
absl::Status Settle(CudaRank& rank);

// DataPath::Poll. What has ended well is not queued any more.
Polled PollEnded(CudaRank& rank);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_SETTLE_H_
