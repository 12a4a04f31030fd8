// What a rank brings to an entry barrier.
#ifndef PERIGEE_KERNELS_CUDA_RANK_BARRIER_ARGUMENTS_H_
#define PERIGEE_KERNELS_CUDA_RANK_BARRIER_ARGUMENTS_H_

#include <cstdint>

#include "kernels/layout/control_page.h"

namespace perigee {

struct EntryArguments {
  Statement statement;
  uint64_t statement_hash = 0;
  uint64_t timeout_ns = 0;  // of the operation, from the moment it starts on the device
  uint32_t flags = 0;       // kEntry... of this rank; cancel, bad route and decline are added
  uint32_t slot = 0;        // as in EntryRecord
  // Of that slot, in host memory that the device sees: 1 where its last read has ended.
  uint64_t* credit = nullptr;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_RANK_BARRIER_ARGUMENTS_H_
