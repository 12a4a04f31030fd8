#include "client/cli/buffer_parts.h"

#include "kernels/layout/geometry.h"
#include "kernels/layout/gradients_layout.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/layout/source_layout.h"

namespace perigee {

absl::optional<uint64_t> GradientBytes(const v1::Buffer& buffer) {
  const v1::BufferShape& shape = buffer.shape();
  const int32_t ranks = buffer.rank_bytes_size();
  if (!shape.gradients() || ranks == 0) return absl::nullopt;
  return GradientBlockLayout::Create({shape.hidden(), shape.intermediate()}, shape.slots(),
                                     shape.experts() / ranks, shape.layers())
      .size_bytes;
}

absl::optional<uint64_t> SourceBytes(const v1::Buffer& buffer) {
  const v1::BufferShape& shape = buffer.shape();
  if (!shape.source_storage()) return absl::nullopt;
  Geometry geometry;
  geometry.tokens = shape.tokens();
  geometry.topk = shape.topk();
  return SourceLayout::Create(geometry, shape.hidden()).size_bytes;
}

absl::optional<uint64_t> OutputSlotBytes(const v1::Buffer& buffer) {
  const v1::BufferShape& shape = buffer.shape();
  const int32_t ranks = buffer.rank_bytes_size();
  const bool has_slots = shape.dispatch_output_slots() > 0 || shape.expert_output_slots() > 0;
  if (!has_slots || ranks == 0) return absl::nullopt;
  Geometry geometry;
  geometry.ranks = ranks;
  geometry.experts = shape.experts();
  geometry.tokens = shape.tokens();
  geometry.topk = shape.topk();
  geometry.slots = shape.slots();
  geometry.token_padding = shape.token_padding();
  const ShardLayout layout = ShardLayout::Create(geometry, shape.hidden());
  const uint64_t expert_bytes = geometry.logical_rows() * shape.hidden() * sizeof(BFloat16);
  return layout.area_bytes * shape.dispatch_output_slots() +
         expert_bytes * shape.expert_output_slots();
}

}  // namespace perigee
