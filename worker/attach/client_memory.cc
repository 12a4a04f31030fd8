#include "worker/attach/client_memory.h"

#include <utility>

#include "kernels/host/memfd_memory.h"
#include "kernels/layout/shard_layout.h"
#include "proto/local/command_page.h"

namespace perigee {

absl::StatusOr<ClientMemory> ClientMemory::Allocate(Backend& backend, ByteBudget& budget,
                                                    const BufferShape& shape) {
  if (absl::Status status = backend.CheckAttachable(); !status.ok()) return status;
  ClientMemory memory;
  memory.layout_ = ClientArenaLayout::Create(shape.geometry, shape.hidden, kHostGranularityBytes);
  absl::StatusOr<ByteBudget::Share> share =
      budget.Take(kCommandPageBytes + memory.layout_.size_bytes);
  if (!share.ok()) return share.status();
  memory.share_ = *std::move(share);
  absl::StatusOr<std::unique_ptr<Memory>> page =
      AllocateMemfd(kCommandPageBytes, PeerAccess::kReadWrite);
  if (!page.ok()) return page.status();
  memory.page_ = *std::move(page);
  absl::StatusOr<std::unique_ptr<Memory>> arena =
      backend.AllocateShared(memory.layout_.size_bytes, PeerAccess::kReadWrite);
  if (!arena.ok()) return arena.status();
  memory.arena_ = *std::move(arena);
  return memory;
}

}  // namespace perigee
