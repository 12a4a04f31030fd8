#include "kernels/buffer_rings.h"

#include <atomic>

#include "kernels/common/futex.h"

namespace perigee {

void ReleaseWord::Pass() const {
  std::atomic_ref<uint64_t>(*word_).store(1, std::memory_order_release);
  // Where the host waits, it sleeps on the half that changes.
  FutexWakeAll(*reinterpret_cast<uint32_t*>(word_));
}

}  // namespace perigee
