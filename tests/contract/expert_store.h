// Expert weights of one layer for a RankGroup: home blocks that peers map read only, and each
// rank's slots.
#ifndef PERIGEE_TESTS_CONTRACT_EXPERT_STORE_H_
#define PERIGEE_TESTS_CONTRACT_EXPERT_STORE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/weights_layout.h"
#include "tests/contract/rank_backends.h"
#include "tests/testing/moe_reference.h"

namespace perigee {

// One expert's matrices: gate and up [H, H'], down [H', H].
struct ExpertBits {
  std::vector<BFloat16> gate;
  std::vector<BFloat16> up;
  std::vector<BFloat16> down;
  friend bool operator==(const ExpertBits&, const ExpertBits&) = default;
};

ExpertValues ValuesOf(const ExpertBits& expert);

class ExpertStore {
 public:
  ExpertStore(const RankBackends& backends, const Geometry& geometry, const WeightsShape& shape,
              bool own_mappings);

  // experts [E]: each rank's home block gets its own; as a loader does it: the version becomes 0
  // first and is written last.
  void Load(int32_t layer, uint64_t version, const std::vector<ExpertBits>& experts);
  // The same of any format: parts [E][kWeightParts] of the bytes that the shape says.
  using ExpertParts = std::array<std::vector<std::byte>, kWeightParts>;
  void Load(int32_t layer, uint64_t version, const std::vector<ExpertParts>& experts);
  // Only what one home block says that it holds.
  void SetHeader(int32_t rank, int32_t layer, uint64_t version);

  // As `rank` sees them.
  ExpertWeights WeightsOf(int32_t rank, int32_t layer, uint64_t version) const;

  SlotTag tag(int32_t rank, int32_t slot) const;
  ExpertBits slot(int32_t rank, int32_t slot) const;
  ExpertParts slot_parts(int32_t rank, int32_t slot) const;
  // Fills all slots but their tags.
  void PoisonSlots(int32_t rank, std::byte value);

 private:
  template <typename T>
  void WriteHome(int32_t rank, size_t offset, const T* values, size_t count);
  void WriteExpert(int32_t rank, int32_t index, const ExpertBits& expert);

  const RankBackends backends_;
  const Geometry geometry_;
  const WeightsShape shape_;
  const WeightsLayout home_layout_;
  const WeightsLayout slot_layout_;
  std::vector<std::unique_ptr<Memory>> homes_;            // [R]
  std::vector<std::unique_ptr<Memory>> slots_;            // [R], null where B = 0
  std::vector<std::unique_ptr<Memory>> mappings_;         // of homes
  std::vector<std::vector<const std::byte*>> home_seen_;  // [R][R] home of peer as rank maps it
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_EXPERT_STORE_H_
