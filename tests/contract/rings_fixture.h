// Groups whose buffers have rings of slots (kernels/buffer_rings.h).
#ifndef PERIGEE_TESTS_CONTRACT_RINGS_FIXTURE_H_
#define PERIGEE_TESTS_CONTRACT_RINGS_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/buffer_rings.h"
#include "tests/contract/contract_backends.h"
#include "tests/contract/expert_store.h"
#include "tests/contract/kept_arrays.h"
#include "tests/contract/rank_group.h"

namespace perigee {

inline constexpr WeightsShape kRingShape = {16, 24};

// What a dispatch into a slot gave a rank. The rows are those of the whole slot, poisoned before.
struct SlotResult {
  absl::Status status;
  RingSlot slot;
  DispatchResult dispatched;
};

class RingsTest : public ContractTest {
 public:
  static constexpr int32_t kRanks = 3;
  static constexpr Geometry kGeometry = {
      .ranks = kRanks, .experts = 6, .tokens = 12, .topk = 3, .slots = 2, .token_padding = 4};

 protected:
  RingsTest();

  RankGroupOptions OptionsFor(const Geometry& geometry, const RingOptions& rings) const;
  // A new group of kGeometry.
  void Start(const RingOptions& rings, absl::Duration operation_timeout = absl::Seconds(120),
             bool queues = false);

  BufferRings& rings(int32_t rank) { return *group_->path(rank).rings(); }
  // Every rank dispatches into its next slot: by its plan of `made`, or makes one.
  std::vector<SlotResult> Dispatch(RankGroup& group, const std::vector<RankInput>& inputs,
                                   const std::vector<PlanPtr>& plans = {});
  // The group's, which must succeed. [R]
  std::vector<SlotResult> Dispatch();
  // Of inputs_, without weights; in kept_.
  DispatchInput InputOf(int32_t rank);
  absl::StatusOr<SlotDispatched> DispatchOn(int32_t rank, Sequence sequence);
  // [NvS, H], from memory of the rank.
  std::vector<BFloat16> RowsAt(int32_t rank, const BFloat16* rows);
  // Every rank.
  std::vector<absl::Status> Release(const std::vector<SlotResult>& results);
  // What an operation that all ranks leave must have left behind: the next one works, and all take
  // the same slot, this one.
  void ExpectNextTakes(int32_t index);
  static void ExpectRefused(const absl::Status& status, absl::StatusCode code,
                            const std::string& text);

  std::mt19937_64 random_;
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<ExpertStore> store_;
  std::vector<RankInput> inputs_;
  KeptArrays kept_;  // all that ranks allocate while others may be in operations

 private:
  void PoisonSlot(RankGroup& group, const RankGroupOptions& options, int32_t rank, int32_t slot);
};

// With the statuses.
std::vector<DispatchResult> DispatchedOf(const std::vector<SlotResult>& results);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_RINGS_FIXTURE_H_
