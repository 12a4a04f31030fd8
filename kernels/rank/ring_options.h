// What rings of slots a data path can have.
#ifndef PERIGEE_KERNELS_RANK_RING_OPTIONS_H_
#define PERIGEE_KERNELS_RANK_RING_OPTIONS_H_

#include "absl/status/status.h"
#include "kernels/backend.h"

namespace perigee {

// INVALID_ARGUMENT, saying what was expected: too many slots, or fewer than none; slots of a
// dispatch whose consumer keeps the rows; slots over transport nccl.
absl::Status CheckRingOptions(const DataPathOptions& options);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_RING_OPTIONS_H_
