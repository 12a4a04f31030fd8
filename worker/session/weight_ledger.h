// Which version of its home weights each layer holds on this rank, while clients load them in
// parallel streams, one per matrix. Logic only.
//
// From the first byte of a load on, the layer holds nothing; it holds a version when gate, up and
// down of that version are complete.
#ifndef PERIGEE_WORKER_SESSION_WEIGHT_LEDGER_H_
#define PERIGEE_WORKER_SESSION_WEIGHT_LEDGER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "proto/v1/worker.pb.h"

namespace perigee {

// INVALID_ARGUMENT unless the layer is one of `layers`, the matrix known and the version not 0.
absl::Status CheckWeightTarget(const v1::WeightTarget& target, int32_t layers);

class WeightLedger {
 public:
  explicit WeightLedger(int32_t layers) : layers_(layers) {}

  // A load begins. Errors: CheckWeightTarget; ABORTED: somebody else loads that matrix, or another
  // version of that layer, right now.
  absl::Status Begin(const v1::WeightTarget& target);
  // The load that began with an equal target is complete; whether the layer now holds its version.
  bool Finish(const v1::WeightTarget& target);
  // It ended before it was complete.
  void Abandon(const v1::WeightTarget& target);

  uint64_t version(int32_t layer) const { return layers_[layer].held; }  // 0: none

 private:
  enum class Matrix : uint8_t { kMissing, kLoading, kComplete };
  struct Layer {
    uint64_t held = 0;
    uint64_t loading = 0;
    std::array<Matrix, 3> matrices{};
  };
  Matrix& MatrixOf(const v1::WeightTarget& target);

  std::vector<Layer> layers_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_WEIGHT_LEDGER_H_
