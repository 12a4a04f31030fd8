// The memory that one local client shares with its worker beside the shard: the tensors that go in
// and come out of its operations. One walk gives offsets and size; worker and client make the same
// one from the buffer's shape.
#ifndef PERIGEE_KERNELS_LAYOUT_CLIENT_ARENA_H_
#define PERIGEE_KERNELS_LAYOUT_CLIENT_ARENA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/plan_arrays.h"
#include "kernels/layout/walk.h"

namespace perigee {

// The parts where they are mapped. Owns nothing.
struct ClientArenaView {
  // Written by the client. An operation reads them between its submission and its completion.
  BFloat16* hidden = nullptr;       // [S, H]
  int32_t* topk_experts = nullptr;  // [S, K]; -1: masked
  float* route_weights = nullptr;   // [S, K]
  // Written by the worker's combine.
  BFloat16* output = nullptr;         // [S, H]
  float* gathered_weights = nullptr;  // [S, K]
  // What the last dispatch of the attachment planned. Written when that dispatch has ended well,
  // and not touched before the next one.
  PlanArrays plan;
};

struct ClientArenaLayout {
  // Offsets in bytes.
  size_t hidden = 0;
  size_t topk_experts = 0;
  size_t route_weights = 0;
  size_t output = 0;
  size_t gathered_weights = 0;
  size_t plan_sequence = 0;
  size_t dst = 0;
  size_t cu_seqlens = 0;
  size_t zero_fill_ranges = 0;
  size_t experts_to_copy = 0;
  size_t load = 0;
  size_t home_load = 0;
  size_t size_bytes = 0;

  // The geometry is valid (kernels/plan/validate.h), hidden > 0 and granularity_bytes a power of
  // two of at least kAlignment.
  static constexpr ClientArenaLayout Create(const Geometry& geometry, int32_t hidden,
                                            size_t granularity_bytes) {
    const int64_t routes = geometry.routes();
    ClientArenaLayout layout;
    LayoutWalk walk;
    layout.hidden = walk.Place<BFloat16>(int64_t{geometry.tokens} * hidden, kAlignment);
    layout.topk_experts = walk.Place<int32_t>(routes, kAlignment);
    layout.route_weights = walk.Place<float>(routes, kAlignment);
    layout.output = walk.Place<BFloat16>(int64_t{geometry.tokens} * hidden, kAlignment);
    layout.gathered_weights = walk.Place<float>(routes, kAlignment);
    layout.plan_sequence = walk.Place<uint64_t>(1, kAlignment);
    layout.dst = walk.Place<int32_t>(routes, kAlignment);
    layout.cu_seqlens = walk.Place<int32_t>(geometry.groups(), kAlignment);
    layout.zero_fill_ranges = walk.Place<int32_t>(int64_t{2} * geometry.groups(), kAlignment);
    layout.experts_to_copy =
        walk.Place<int32_t>(int64_t{geometry.ranks} * geometry.slots, kAlignment);
    layout.load = walk.Place<int32_t>(geometry.ranks, kAlignment);
    layout.home_load = walk.Place<int32_t>(geometry.ranks, kAlignment);
    layout.size_bytes = walk.size_bytes(granularity_bytes);
    return layout;
  }

  ClientArenaView View(std::byte* base) const {
    const auto ints = [base](size_t offset) { return reinterpret_cast<int32_t*>(base + offset); };
    return ClientArenaView{
        reinterpret_cast<BFloat16*>(base + hidden),
        ints(topk_experts),
        reinterpret_cast<float*>(base + route_weights),
        reinterpret_cast<BFloat16*>(base + output),
        reinterpret_cast<float*>(base + gathered_weights),
        {reinterpret_cast<uint64_t*>(base + plan_sequence), ints(dst), ints(cu_seqlens),
         ints(zero_fill_ranges), ints(experts_to_copy), ints(load), ints(home_load)}};
  }

 private:
  static constexpr size_t kAlignment = 256;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LAYOUT_CLIENT_ARENA_H_
