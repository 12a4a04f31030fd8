// What a staged data path (staged_data_path.h) needs of its backend: one rank's memory, and the
// simple work on it. All that moves between ranks is elsewhere (peer_exchange.h).
#ifndef PERIGEE_KERNELS_STAGED_STAGED_DEVICE_H_
#define PERIGEE_KERNELS_STAGED_STAGED_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/plan/plan.h"
#include "kernels/rank/progress.h"
#include "kernels/rank/rank_shape.h"

namespace perigee {

// Element i of a list of rows [*, H] or of numbers is the one at index[i], or at i without an
// index.
template <typename T>
struct Indexed {
  T* data = nullptr;
  const int32_t* index = nullptr;
};

// Sum i is of the rows at rows[ends[i - 1]] up to rows[ends[i]] of `from`, in this order, in fp32,
// rounded once; zeros where there are none. `to` may be the first of its own rows.
struct RowSums {
  Indexed<BFloat16> to;
  const BFloat16* from = nullptr;
  const int32_t* ends = nullptr;
  const int32_t* rows = nullptr;
  int32_t count = 0;
};

// Not thread-safe, but for Abort. Lists lie in the device's memory. Of what is queued, each begins
// when the one before has ended; Read, Write and Allocate do not wait for it.
class StagedDevice {
 public:
  virtual ~StagedDevice() = default;
  virtual RankShape& shape() = 0;
  virtual Progress& progress() = 0;

  virtual absl::StatusOr<std::unique_ptr<Memory>> Allocate(size_t size_bytes) = 0;
  virtual absl::Status Read(absl::Span<std::byte> to, const std::byte* from) = 0;
  virtual absl::Status Write(std::byte* to, absl::Span<const std::byte> from) = 0;
  // INVALID_ARGUMENT, naming `what`, for an address at which rows cannot lie.
  virtual absl::Status CheckAddress(const char* what, const void* address) = 0;

  // Queued. Where `from` is null, zeros are written.
  virtual absl::Status CopyRows(const Indexed<BFloat16>& to, const Indexed<const BFloat16>& from,
                                int64_t count) = 0;
  virtual absl::Status CopyFloats(const Indexed<float>& to, const Indexed<const float>& from,
                                  int64_t count) = 0;
  virtual absl::Status SumRows(const RowSums& sums) = 0;
  virtual absl::Status AddFloats(float* to, const float* from, int64_t count) = 0;
  // For what is queued, bounded.
  virtual absl::Status Wait() = 0;

  // A plan as RunExperts takes it, of this rank.
  virtual absl::StatusOr<PlanPtr> MakePlan(Sequence sequence, int32_t token_count,
                                           const GroupPlan& plan) = 0;
  // As DataPath::RunExperts; has ended when it returns.
  virtual absl::Status RunExperts(const PlanPtr& plan, const ExpertWeights& weights,
                                  const RunExpertsInput& input) = 0;
  // Of what RunExperts may be at, besides Progress::Abort.
  virtual void Abort(int32_t lost_rank, const std::string& reason) = 0;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_STAGED_STAGED_DEVICE_H_
