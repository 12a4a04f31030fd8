#include "kernels/cuda/expert_scratch.h"

#include <utility>

#include "kernels/layout/walk.h"

namespace perigee {

absl::StatusOr<ExpertScratch> TakeExpertScratch(CudaRank& rank, int32_t intermediate) {
  LayoutWalk walk;
  const size_t tile_count = walk.Place<int32_t>(1);
  const size_t tiles = walk.Place<ExpertTile>(MaxTiles(rank.geometry));
  const size_t h = walk.Place<BFloat16>(int64_t{rank.logical_rows()} * intermediate);
  const size_t size_bytes = walk.size_bytes(256);
  if (rank.expert_scratch == nullptr || rank.expert_scratch->size_bytes() < size_bytes) {
    rank.expert_scratch.reset();  // waits for the kernels that use it
    auto memory = PrivateDeviceMemory::Allocate(rank.device, size_bytes);
    if (!memory.ok()) return memory.status();
    rank.expert_scratch = *std::move(memory);
  }
  std::byte* base = rank.expert_scratch->data();
  ExpertScratch scratch;
  scratch.h = reinterpret_cast<BFloat16*>(base + h);
  scratch.tiles = reinterpret_cast<ExpertTile*>(base + tiles);
  scratch.tile_count = reinterpret_cast<int32_t*>(base + tile_count);
  return scratch;
}

}  // namespace perigee
