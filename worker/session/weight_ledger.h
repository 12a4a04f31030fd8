// Which version of its home weights each layer holds on this rank, while clients load them in
// parallel streams, one per matrix. Logic only.
//
// From the first byte of a load on, the layer holds nothing; it holds a version when gate, up and
// down of that version are complete, and their scales where there are any.
#ifndef PERIGEE_WORKER_SESSION_WEIGHT_LEDGER_H_
#define PERIGEE_WORKER_SESSION_WEIGHT_LEDGER_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/layout/weights_layout.h"
#include "proto/v1/worker.pb.h"

namespace perigee {

// INVALID_ARGUMENT unless the layer is one of `layers`, the matrix one of the first `parts` kinds
// and the version not 0.
absl::Status CheckWeightTarget(const v1::WeightTarget& target, int32_t layers,
                               int parts = kWeightMatrices);

class WeightLedger {
 public:
  explicit WeightLedger(int32_t layers, int parts = kWeightMatrices)
      : parts_(parts), layers_(layers) {}

  // A load begins. Errors: CheckWeightTarget; ABORTED: somebody else loads that matrix, or another
  // version of that layer, right now.
  absl::Status Begin(const v1::WeightTarget& target);
  // The load that began with an equal target is complete; whether the layer now holds its version.
  bool Finish(const v1::WeightTarget& target);
  // It ended before it was complete.
  void Abandon(const v1::WeightTarget& target);

  uint64_t version(int32_t layer) const { return layers_[layer].held; }  // 0: none
  // FAILED_PRECONDITION, naming what is missing, where a version of the layer has been written in
  // part; OK where one is held or nothing is there.
  absl::Status CheckComplete(int32_t layer) const;

 private:
  enum class Matrix : uint8_t { kMissing, kLoading, kComplete };
  struct Layer {
    uint64_t held = 0;
    uint64_t loading = 0;
    std::array<Matrix, kWeightParts> matrices{};  // the first parts_ of them
  };
  Matrix& MatrixOf(const v1::WeightTarget& target);

  const int parts_;
  std::vector<Layer> layers_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_WEIGHT_LEDGER_H_
