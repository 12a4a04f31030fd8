// One rank's rounds of dispatch and combine whose results are known beforehand: the same input each
// time, rows and weights as the reference plans them, sums as the reference adds them up.
#ifndef PERIGEE_TESTS_DEVICE_CHECKED_ROUNDS_H_
#define PERIGEE_TESTS_DEVICE_CHECKED_ROUNDS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/layout/geometry.h"
#include "tests/contract/rank_group.h"
#include "tests/testing/moe_reference.h"

namespace perigee {

struct RoundsShape {
  Geometry geometry;
  int32_t hidden = 0;
  uint64_t seed = 0;  // the same on all ranks
};

// Not thread-safe. Outlives what it has queued on a data path: kernels read its memory.
class CheckedRounds {
 public:
  static absl::StatusOr<std::unique_ptr<CheckedRounds>> Create(Backend& backend,
                                                               const RoundsShape& shape,
                                                               int32_t rank);

  // One round at the next two sequences. Errors of the operations, or INTERNAL: rows, weights or
  // sums are not what they should be.
  absl::Status RunChecked(DataPath& path);
  // `ahead` rounds queued before one wait; the last one's sums are checked.
  absl::Status Run(DataPath& path, int32_t ahead);
  // A dispatch at the next sequence, and its end.
  absl::Status Dispatch(DataPath& path);

 private:
  CheckedRounds(Backend& backend, const RoundsShape& shape, int32_t rank);

  absl::Status Upload(const RankInput& input);
  absl::StatusOr<PlanPtr> QueueDispatch(DataPath& path);
  absl::Status QueueCombine(DataPath& path, const PlanPtr& plan);
  absl::Status PoisonOutput();
  absl::Status CheckRows(const DataPath& path) const;
  absl::Status CheckOutput() const;

  Backend& backend_;
  const RoundsShape shape_;
  const int32_t rank_;
  Sequence last_;  // that was queued

  std::vector<RowSource> sources_;                          // [NvS] of this rank
  std::vector<BFloat16> expected_rows_;                     // [NvS, H]
  std::vector<float> expected_row_weights_;                 // [NvS]
  std::vector<BFloat16> expected_hidden_;                   // [S, H]
  std::vector<float> expected_route_weights_;               // [S, K]
  std::unique_ptr<Memory> hidden_, routes_, weights_;       // input on the device
  std::unique_ptr<Memory> out_hidden_, out_route_weights_;  // output on the device
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_DEVICE_CHECKED_ROUNDS_H_
