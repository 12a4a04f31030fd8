// The memory of one buffer as one rank has it: its own part (shard, home weights, slots, gradients,
// source shard)
// and the mappings of its peers' parts.
#ifndef PERIGEE_WORKER_MEMORY_BUFFER_MEMORY_H_
#define PERIGEE_WORKER_MEMORY_BUFFER_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "kernels/layout/gradients_layout.h"
#include "kernels/layout/weights_layout.h"
#include "proto/local/file_descriptor.h"
#include "proto/local/wait_limit.h"
#include "worker/memory/buffer_shape.h"
#include "worker/memory/descriptor_server.h"

namespace perigee {

// Not thread-safe. Its destructor unmaps peers before it frees its own memory; a DataPath made from
// it is gone by then.
class BufferMemory {
 public:
  // Blocks while pages are allocated. RESOURCE_EXHAUSTED names the bytes that the whole part needs
  // and those that are free; CANCELLED: `stop` was raised, which is seen between one block (shard,
  // home weights of a layer, slots) and the next. The backend outlives the memory.
  static absl::StatusOr<std::unique_ptr<BufferMemory>> Allocate(Backend& backend,
                                                                const BufferShape& shape,
                                                                RankId rank,
                                                                const Interrupt* stop = nullptr);
  // Bytes that Allocate takes.
  static uint64_t NeededBytes(const BufferShape& shape);
  ~BufferMemory();
  BufferMemory(const BufferMemory&) = delete;
  BufferMemory& operator=(const BufferMemory&) = delete;

  // What peers fetch: parts 0 and 1 are the two of the shard (kernels/layout/shard_layout.h), part
  // 2 + l the home block of layer l, and behind these the gradients where they are kept and the
  // source shard where there is one. Every rank's parts have the same descriptions.
  std::vector<OfferedPart> parts() const;
  std::vector<PartDescription> part_descriptions() const;
  // Maps a peer's parts. INVALID_ARGUMENT names the peer where a descriptor is not what it should
  // be; what was mapped of it before stays until the destructor.
  absl::Status ImportPeer(RankId peer, std::vector<FileDescriptor> descriptors);
  // Where peers' parts are not mapped: from now on the own ones are in their places below, which
  // the data path of such a buffer does not touch.
  void StandInForPeers() { stands_in_ = true; }

  // [R], this rank's own included. Every peer has been imported, or this rank stands in for them.
  std::vector<std::byte*> shards() const;
  std::vector<std::byte*> shard_rows() const;
  std::vector<const std::byte*> homes(int32_t layer) const;
  // Empty where there is no source storage.
  std::vector<std::byte*> sources() const;

  // One layer's, of a shape with gradients.
  ExpertGradients gradients(int32_t layer) const;

  // What a local client may have of this rank's shard.
  const Memory& own_shard_rows() const { return *of(rank_).shard_rows; }
  // Of a shape with peer_store: [R - 1] what it may have of the others', which is as large, in
  // order of rank; borrowed. Empty else.
  std::vector<int> peer_rows_descriptors() const;
  std::byte* own_home(int32_t layer) const { return of(rank_).homes[layer]->data(); }
  const WeightsLayout& home_layout() const { return home_layout_; }
  // Null where none are kept.
  const Memory* own_gradients() const { return of(rank_).gradients.get(); }
  const Memory* own_source() const { return of(rank_).source.get(); }
  const GradientBlockLayout& gradients_layout() const { return gradients_layout_; }
  // Null where there are none.
  const Memory* own_slots() const { return slots_.get(); }
  std::byte* slots() const { return slots_ ? slots_->data() : nullptr; }
  RankId rank() const { return rank_; }
  uint64_t allocated_bytes() const { return NeededBytes(shape_); }

 private:
  struct RankParts {
    std::unique_ptr<Memory> shard;  // its words
    std::unique_ptr<Memory> shard_rows;
    std::vector<std::unique_ptr<Memory>> homes;  // [layers]
    std::unique_ptr<Memory> gradients;           // null where none are kept
    std::unique_ptr<Memory> source;              // likewise
    FileDescriptor rows_descriptor;              // of a peer's shard_rows, with peer_store
  };

  BufferMemory(Backend& backend, const BufferShape& shape, RankId rank);
  absl::Status AllocateOwn(const Interrupt* stop);
  const Memory& PartOf(const PartDescription& description) const;
  const RankParts& of(RankId rank) const { return ranks_[stands_in_ ? rank_.value : rank.value]; }

  Backend& backend_;
  const BufferShape shape_;
  const RankId rank_;
  const WeightsLayout home_layout_;
  const GradientBlockLayout gradients_layout_;
  std::vector<RankParts> ranks_;  // [R]
  bool stands_in_ = false;
  std::unique_ptr<Memory> slots_;  // null where B or the layers are 0
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_MEMORY_BUFFER_MEMORY_H_
