// Rings of output slots of a data path that moves nothing. Their words are as the last call leaves
// them, and nobody waits for one.
#ifndef PERIGEE_WORKER_TESTING_FAKE_RINGS_H_
#define PERIGEE_WORKER_TESTING_FAKE_RINGS_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/rank/path_rings.h"

namespace perigee {

class FakeRings final : private RingSide {
 public:
  // last_place: as RingSide has it.
  FakeRings(const DataPathOptions& options, DataPath& path, std::function<uint32_t()> last_place)
      : last_place_(std::move(last_place)),
        words_(options.rings.dispatch_slots, 1),
        expert_rows_(options.rings.expert_slots),
        slot_rows_(options.rings.dispatch_slots),
        shape_(ShapeOf(options, slot_rows_)),
        rings_(options.rings, path, shape_, *this) {}
  FakeRings(const FakeRings&) = delete;
  FakeRings& operator=(const FakeRings&) = delete;

  PathRings& rings() { return rings_; }
  // Whether the slot's last read is over; as the entry of a dispatch into it clears that.
  bool IsFree(int32_t slot) const { return words_[slot] != 0; }
  void Clear(int32_t slot) { words_[slot] = 0; }

 private:
  static RankShape ShapeOf(const DataPathOptions& options, std::vector<BFloat16>& slot_rows) {
    RankShape shape;
    shape.geometry = options.geometry;
    shape.hidden = options.hidden;
    shape.rank = options.rank;
    shape.buffer = options.buffer;
    shape.generation = options.generation;
    shape.shards.resize(options.geometry.ranks);
    shape.slot_shards.assign(slot_rows.size(), shape.shards);
    for (size_t slot = 0; slot < slot_rows.size(); ++slot) {
      shape.slot_shards[slot][options.rank.value].rows = &slot_rows[slot];
    }
    shape.slot_live.resize(slot_rows.size());
    return shape;
  }

  void UseSlot(int32_t slot) override { shape_.UseSlot(slot); }
  absl::Status FreeInOrder(int32_t slot) override {
    words_[slot] = 1;
    return absl::OkStatus();
  }
  absl::Status FreeOnStream(int32_t, CUstream_st*) override { return absl::OkStatus(); }
  uint64_t* WordOf(int32_t slot) const override { return &words_[slot]; }
  BFloat16* ExpertRows(int32_t slot) const override { return &expert_rows_[slot]; }
  void ForgetError() override {}
  uint32_t last_place() const override { return last_place_(); }

  const std::function<uint32_t()> last_place_;
  mutable std::vector<uint64_t> words_;
  mutable std::vector<BFloat16> expert_rows_;
  std::vector<BFloat16> slot_rows_;
  RankShape shape_;
  PathRings rings_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_FAKE_RINGS_H_
