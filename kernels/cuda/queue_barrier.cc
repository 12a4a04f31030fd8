#include "kernels/cuda/operations.h"

namespace perigee {

absl::Status QueueBarrier(CudaRank& rank, Sequence sequence) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kBarrier);
  if (!status.ok()) return status;
  // Nothing lies between entry and exit, so the entry alone is the whole barrier. Orders: all that
  // any rank did before it, before all that any rank does after it.
  return QueueEntry(rank, rank.Descriptor(Operation::kBarrier), 0,
                    {.mark = MarkOf(rank, Operation::kBarrier)});
}

absl::Status QueueDecline(CudaRank& rank, Sequence sequence) {
  absl::Status status = BeginCollective(rank, sequence, Operation::kNone);
  if (!status.ok()) return status;
  return QueueEntry(rank, OperationDescriptor(), kEntryDeclined,
                    {.mark = MarkOf(rank, Operation::kNone)});
}

}  // namespace perigee
