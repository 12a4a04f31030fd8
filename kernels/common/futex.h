// Sleeping on a 32-bit word in shared memory until another process changes it.
#ifndef PERIGEE_KERNELS_COMMON_FUTEX_H_
#define PERIGEE_KERNELS_COMMON_FUTEX_H_

#include <chrono>
#include <cstdint>

namespace perigee {

// Blocks while `word` holds `expected`, until a wake, a signal or the timeout; may also return for
// no reason. The word lies in a MAP_SHARED mapping: the kernel then finds waiters by file and
// offset, so each process may have it at another address.
void FutexWait(uint32_t& word, uint32_t expected, std::chrono::nanoseconds timeout);

// Wakes all who wait on `word`, in every process.
void FutexWakeAll(uint32_t& word);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_COMMON_FUTEX_H_
