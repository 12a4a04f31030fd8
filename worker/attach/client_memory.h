// What one local client and this worker share beside the shard: the command page and the arena.
#ifndef PERIGEE_WORKER_ATTACH_CLIENT_MEMORY_H_
#define PERIGEE_WORKER_ATTACH_CLIENT_MEMORY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/layout/client_arena.h"
#include "worker/memory/buffer_shape.h"
#include "worker/ops/byte_budget.h"

namespace perigee {

class ClientMemory {
 public:
  // Zeroed and sealed. UNIMPLEMENTED: nobody can attach to this backend; RESOURCE_EXHAUSTED, naming
  // the bytes wanted: the budget or the machine has too little left. Both outlive the memory.
  static absl::StatusOr<ClientMemory> Allocate(Backend& backend, ByteBudget& budget,
                                               const BufferShape& shape);

  absl::Span<std::byte> page() const { return absl::MakeSpan(page_->data(), page_->size_bytes()); }
  int page_descriptor() const { return page_->descriptor(); }
  ClientArenaView arena() const { return layout_.View(arena_->data()); }
  size_t arena_bytes() const { return arena_->size_bytes(); }
  int arena_descriptor() const { return arena_->descriptor(); }

 private:
  ClientMemory() = default;

  ByteBudget::Share share_;
  ClientArenaLayout layout_;
  std::unique_ptr<Memory> page_;   // of the host, whatever the backend
  std::unique_ptr<Memory> arena_;  // of the backend
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_ATTACH_CLIENT_MEMORY_H_
