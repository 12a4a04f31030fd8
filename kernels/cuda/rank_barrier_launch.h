// The barrier of a group (rank_barrier.cuh) in kernels of its own, for operations that consist of
// little else.
#ifndef PERIGEE_KERNELS_CUDA_RANK_BARRIER_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_RANK_BARRIER_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/path_view.h"
#include "kernels/cuda/rank_barrier_arguments.h"

namespace perigee {

// Tells every rank what this one says about the operation, arrives, waits for all, and stops the
// path where they do not all say the same.
int LaunchEntryBarrier(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                       const EntryArguments& entry);
// The same without the wait, for a rank that is out of step: the others learn where it is.
int LaunchArrival(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                  const EntryArguments& entry);
// Behind all that is ahead of it in the stream, unless the path has been stopped: the word of a
// dispatch-output slot says that its last read has ended.
int LaunchFreeSlot(const LaunchTarget& target, const PathView& path, uint64_t* word);
int LaunchExitBarrier(const LaunchTarget& target, const PathView& path, const OperationMark& mark);

// Loads the kernels, which their first launch would do at a worse time.
int LoadRankBarrierKernels();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_RANK_BARRIER_LAUNCH_H_
