// Expert gradients of one layer for a RankGroup: each rank's own experts', and slot blocks that
// peers map read only.
#ifndef PERIGEE_TESTS_CONTRACT_GRADIENT_STORE_H_
#define PERIGEE_TESTS_CONTRACT_GRADIENT_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/gradients_layout.h"
#include "tests/contract/device_array.h"
#include "tests/contract/rank_backends.h"

namespace perigee {

// One rank's, of all three kinds: gate, up, down.
struct GradientValues {
  std::vector<float> home[3];   // [E/R, elements]
  std::vector<float> slots[3];  // [B, elements]
};

class GradientStore {
 public:
  GradientStore(const RankBackends& backends, const Geometry& geometry, const WeightsShape& shape,
                bool own_mappings);

  void Write(int32_t rank, const GradientValues& values);
  GradientValues Read(int32_t rank) const;
  // As `rank` sees them.
  ExpertGradients GradientsOf(int32_t rank, int32_t layer) const;
  int64_t elements() const { return shape_.matrix_elements(); }

 private:
  size_t offset(int kind) const;

  const RankBackends backends_;
  const Geometry geometry_;
  const WeightsShape shape_;
  const GradientsLayout layout_;
  std::vector<DeviceArray<float>> homes_[3];               // [R]
  std::vector<std::unique_ptr<Memory>> slots_;             // [R]
  std::vector<std::unique_ptr<Memory>> mappings_;          // of slots
  std::vector<std::vector<const std::byte*>> slots_seen_;  // [R][R] of peer as rank maps it
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_GRADIENT_STORE_H_
