// What the operations of the host backend share: one rank's shape, mapped shards and helpers.
#ifndef PERIGEE_KERNELS_HOST_HOST_RANK_H_
#define PERIGEE_KERNELS_HOST_HOST_RANK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "kernels/host/collective.h"
#include "kernels/host/host_plan.h"
#include "kernels/host/thread_pool.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/operation.h"
#include "kernels/layout/shard_layout.h"

namespace perigee {

// Which plan's rows and weights this rank's shard holds, as seen by a caller that reads it in
// place; sequence 0: none, they are undefined or have been consumed.
struct LiveRows {
  Sequence rows;
  Sequence weights;
};

struct HostRank {
  Geometry geometry;
  int32_t hidden = 0;
  RankId rank;
  BufferId buffer;
  Generation generation;
  ShardLayout layout;
  std::vector<ShardView> shards;  // [R]
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Collective> collective;
  LiveRows live;

  const ShardView& own() const { return shards[rank.value]; }
  int32_t logical_rows() const { return static_cast<int32_t>(layout.logical_rows); }

  // With everything but what single operations add.
  OperationDescriptor Descriptor(Operation operation) const;
  absl::StatusOr<std::shared_ptr<const HostPlan>> PlanOf(const PlanPtr& plan) const {
    return HostPlanOf(plan, rank, buffer, generation);
  }
  // INVALID_ARGUMENT, naming `what`, where [data, data + bytes) meets this rank's shard: an
  // operation would overwrite it while it reads it.
  absl::Status CheckOutsideShard(const char* what, const void* data, size_t bytes) const;
  // A source that is either the shard's own rows (or row weights), holding those of `plan`, or
  // memory outside the shard. INVALID_ARGUMENT, naming what the shard holds, where the alias is
  // dead.
  absl::Status CheckRowsSource(const HostPlan& plan, const BFloat16* rows) const;
  absl::Status CheckWeightsSource(const HostPlan& plan, const float* row_weights) const;
  // bytes of `rows` rows of H elements.
  size_t row_bytes(int64_t rows) const {
    return static_cast<size_t>(rows) * hidden * sizeof(BFloat16);
  }
};

// INVALID_ARGUMENT unless the weights' shape fits the buffer, every home block is mapped, and slots
// are given where B > 0.
absl::Status CheckWeights(const HostRank& rank, const ExpertWeights& weights);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_HOST_RANK_H_
