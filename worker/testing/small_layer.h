// A small random MoE layer for a whole group: what every rank loads, and what must come out by the
// rules (tests/testing/moe_reference.h).
#ifndef PERIGEE_WORKER_TESTING_SMALL_LAYER_H_
#define PERIGEE_WORKER_TESTING_SMALL_LAYER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/layout/geometry.h"
#include "kernels/plan/reference.h"
#include "proto/v1/buffers.pb.h"
#include "proto/v1/worker.pb.h"
#include "tests/testing/moe_reference.h"

namespace perigee {

// Dispatch, prefetch, experts with route weights, combine: tensors hidden, topk, weights -> output,
// gathered; plan p; layer 0 at version 9.
inline constexpr char kLayerProgram[] = R"pb(
  operations {
    dispatch { hidden: "hidden" topk_experts: "topk" route_weights: "weights" plan: "p" }
  }
  operations { prefetch_weights { plan: "p" layer: 0 weights_version: 9 } }
  operations { run_experts { plan: "p" layer: 0 weights_version: 9 apply_route_weights: true } }
  operations { combine { plan: "p" output: "output" route_weights_output: "gathered" } }
)pb";

// One tensor to load, and where.
struct LayerTensor {
  v1::TensorTarget target;  // of the test group's buffer, generation 7
  v1::TensorHeader header;
  std::string bytes;
};

// What RelativeError of an output to SmallLayer's may be. The reference rounds where workers do,
// but sums in fp64: where that makes a value fall to the other side between two bf16, it is off by
// one step, which is 2.2e-3 for one of the largest of these few (seed 159 of session_host_test, one
// of 300). Where workers round is held by a closer bound, of many values:
// tests/contract/layer_test.
inline constexpr double kSmallLayerTolerance = 4e-3;

class SmallLayer {
 public:
  // Rank r has r + 1 tokens less than the capacity, the last rank none; some routes are masked.
  SmallLayer(int32_t ranks, uint64_t seed);

  v1::BufferShape shape() const;
  const Geometry& geometry() const { return geometry_; }
  const ReferencePlan& plan() const { return plan_; }

  std::vector<LayerTensor> Inputs(int32_t rank) const;
  std::vector<LayerTensor> Weights(int32_t rank) const;

  // Values of the output [S, H] of a rank, and the bytes of gathered [S, K].
  std::vector<double> ExpectedOutput(int32_t rank) const;
  std::string ExpectedGathered(int32_t rank) const;

 private:
  std::vector<double> ExpertRow(const RowSource& source) const;

  Geometry geometry_;
  std::vector<int32_t> token_counts_;        // [R]
  Matrix topk_;                              // [R][S, K]
  std::vector<std::vector<double>> hidden_;  // [R][S, H]
  std::vector<std::vector<float>> weights_;  // [R][S, K]
  std::vector<ExpertValues> experts_;        // [E]
  ReferencePlan plan_;
  std::vector<std::vector<double>> outputs_;  // [R][S, H]
};

// The values of bf16 bytes.
std::vector<double> BFloat16Values(const std::string& bytes);

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_SMALL_LAYER_H_
