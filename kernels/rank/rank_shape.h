// What one rank of one buffer is: its identity, its shape and where it sees the ranks' shards.
// Every backend's data path has one, and checks the arguments of its operations against it
// (argument_checks.h).
#ifndef PERIGEE_KERNELS_RANK_RANK_SHAPE_H_
#define PERIGEE_KERNELS_RANK_RANK_SHAPE_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/common/ids.h"
#include "kernels/layout/control_page.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/operation.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/layout/source_layout.h"
#include "kernels/living_source.h"

namespace perigee {

// Which plan's rows and weights this rank's shard holds, as seen by a caller that reads it in
// place; sequence 0: none, they are undefined or have been consumed.
struct LiveRows {
  Sequence rows;
  Sequence weights;
  // The target that producers may be writing to, on any rank; 0: none.
  Sequence target = {};
  bool prepared = false;       // its publication is, and nothing else may write the shard
  bool sends_weights = false;  // with it
};

struct RankShape {
  Geometry geometry;
  int32_t hidden = 0;  // H
  RankId rank;
  BufferId buffer;
  Generation generation;
  ShardLayout layout;
  std::vector<ShardView> shards;  // [R] as mapped here
  LiveRows live;
  std::vector<SourceShardView> sources;  // [R] as mapped here, or none
  LivingSource source;                   // that its views look at
  // Of each dispatch-output slot: the ranks' shards with its rows in the place of theirs, and what
  // these are. While operations work on a slot (UseSlot) the shard's own are kept in its place.
  std::vector<std::vector<ShardView>> slot_shards;
  std::vector<LiveRows> slot_live;
  int32_t slot = -1;  // in use, -1: none

  const ShardView& own() const { return shards[rank.value]; }
  // The operations that follow have rows and weights of a slot, -1: of the shard.
  void UseSlot(int32_t next) {
    for (const int32_t changed : {slot, next}) {
      if (changed < 0) continue;
      std::swap(shards, slot_shards[changed]);
      std::swap(live, slot_live[changed]);
    }
    slot = next;
  }
  // Of the shard, also while a slot is in use.
  const LiveRows& shard_live() const { return slot < 0 ? live : slot_live[slot]; }
  LiveRows& shard_live() { return slot < 0 ? live : slot_live[slot]; }
  // Likewise; the rows of slots lie behind them.
  const BFloat16* shard_rows() const {
    return slot < 0 ? own().rows : slot_shards[slot][rank.value].rows;
  }
  int32_t logical_rows() const { return static_cast<int32_t>(layout.logical_rows); }
  // bytes of `rows` rows of H elements.
  size_t row_bytes(int64_t rows) const {
    return static_cast<size_t>(rows) * hidden * sizeof(BFloat16);
  }
  ObjectTag TagOf(Sequence sequence) const { return {buffer, generation, sequence}; }

  // With everything but what single operations add.
  OperationDescriptor Descriptor(Operation operation) const {
    OperationDescriptor descriptor;
    descriptor.operation = static_cast<uint32_t>(operation);
    descriptor.tokens = geometry.tokens;
    descriptor.hidden = hidden;
    descriptor.topk = geometry.topk;
    descriptor.experts = geometry.experts;
    descriptor.slots = geometry.slots;
    descriptor.token_padding = geometry.token_padding;
    descriptor.dtype = static_cast<uint32_t>(Dtype::kBFloat16);
    return descriptor;
  }
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_RANK_SHAPE_H_
