// Sleeping on a 32-bit word in shared memory until another process changes it.
#ifndef PERIGEE_KERNELS_HOST_FUTEX_H_
#define PERIGEE_KERNELS_HOST_FUTEX_H_

#include <cstdint>

#include "absl/time/time.h"

namespace perigee {

// Blocks while `word` holds `expected`, until a wake, a signal or the timeout; may also return for
// no reason. The word lies in a MAP_SHARED mapping: the kernel then finds waiters by file and
// offset, so each process may have it at another address.
void FutexWait(uint32_t& word, uint32_t expected, absl::Duration timeout);

// Wakes all who wait on `word`, in every process.
void FutexWakeAll(uint32_t& word);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_FUTEX_H_
