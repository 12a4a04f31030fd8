// A mixture-of-experts layer with random tokens in the file layout of `perigee run moe-layer`,
// small enough to compute the slow way.
#ifndef PERIGEE_TESTS_TESTING_LAYER_FILE_H_
#define PERIGEE_TESTS_TESTING_LAYER_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/common/bfloat16.h"
#include "proto/support/tensor_file.h"

namespace perigee {

struct LayerFile {
  struct Sizes {
    int32_t ranks = 2;         // Rf, as the file is cut
    int32_t tokens = 8;        // Sf
    int32_t hidden = 16;       // H
    int32_t topk = 2;          // K
    int32_t experts = 4;       // E
    int32_t intermediate = 8;  // H'
  };

  // Every token goes to K different experts, but for the routes that are masked (a tenth).
  static LayerFile Random(const Sizes& sizes, uint64_t seed);

  // Fills `expected` from the rest, in fp64.
  void ComputeExpected();
  // The tensors of the file, expected_output among them unless `expected` lacks its values; they
  // borrow from this.
  std::vector<TensorSource> Tensors() const;
  absl::Status Write(const std::string& path) const;

  Sizes sizes;
  std::vector<BFloat16> hidden;       // [Rf * Sf, H]
  std::vector<int32_t> topk_experts;  // [Rf * Sf, K]
  std::vector<float> route_weights;   // [Rf * Sf, K]
  std::vector<BFloat16> gate, up;     // [E, H, H']
  std::vector<BFloat16> down;         // [E, H', H]
  std::vector<float> expected;        // [Rf * Sf, H]
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_TESTING_LAYER_FILE_H_
