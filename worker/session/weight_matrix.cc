#include "worker/session/weight_matrix.h"

#include <atomic>

#include "absl/types/span.h"
#include "kernels/layout/weights_layout.h"
#include "worker/ops/tensor_spec.h"

namespace perigee {
namespace {

// Neither what was written before nor what follows moves past it. The race detector knows no fences
// and refuses to compile one; within a test's process barriers and locks order these writes, too.
void WriteFence() {
#if !defined(PERIGEE_TSAN)
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

std::byte* WeightMatrix(const BufferMemory& memory, const v1::WeightTarget& target) {
  return memory.own_home(target.layer()) + memory.home_layout().part(WeightPart(target.kind()));
}

absl::Status WriteHomeHeader(Backend& backend, const BufferMemory& memory, int32_t layer,
                             uint64_t version) {
  HomeHeader header;
  header.version = version;
  header.layer = version == 0 ? -1 : layer;
  WriteFence();
  absl::Status status = backend.CopyIn(
      memory.own_home(layer) + memory.home_layout().header,
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&header), sizeof(header)));
  WriteFence();
  return status;
}

}  // namespace perigee
