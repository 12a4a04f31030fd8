// The barrier of a group on the device, in kernels of one block that wait for peers; no other
// kernel of a data path waits for anybody, so every kernel but these ends by itself.
//
// Memory order: kernels of one stream follow each other, so all that this rank's earlier kernels
// stored is released by the arrival (st.release.sys), and all that peers stored before theirs is
// acquired by the wait (ld.acquire.sys) for the kernels that follow.
#ifndef PERIGEE_KERNELS_CUDA_RANK_BARRIER_LAUNCH_H_
#define PERIGEE_KERNELS_CUDA_RANK_BARRIER_LAUNCH_H_

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/path_view.h"

namespace perigee {

struct EntryArguments {
  Statement statement;
  uint64_t statement_hash = 0;
  uint64_t timeout_ns = 0;  // of the operation, from the moment it starts on the device
  uint32_t flags = 0;       // kEntry... of this rank; cancel, bad route and decline are added
};

// Tells every rank what this one says about the operation, arrives, waits for all, and stops the
// path where they do not all say the same.
int LaunchEntryBarrier(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                       const EntryArguments& entry);
// The same without the wait, for a rank that is out of step: the others learn where it is.
int LaunchArrival(const LaunchTarget& target, const PathView& path, const OperationMark& mark,
                  const EntryArguments& entry);
int LaunchExitBarrier(const LaunchTarget& target, const PathView& path, const OperationMark& mark);

// Loads the kernels, which their first launch would do at a worse time.
int LoadRankBarrierKernels();

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_RANK_BARRIER_LAUNCH_H_
