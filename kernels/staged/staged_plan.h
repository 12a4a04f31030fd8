// A plan of a staged data path: the backend's own, for what runs on it, and the lists by which rows
// travel.
#ifndef PERIGEE_KERNELS_STAGED_STAGED_PLAN_H_
#define PERIGEE_KERNELS_STAGED_STAGED_PLAN_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/rank/argument_checks.h"
#include "kernels/staged/row_lists.h"
#include "kernels/staged/staged_device.h"

namespace perigee {

// RowLists in the device's memory, and their lengths.
struct ListsView {
  const int32_t* sent_tokens = nullptr;
  const int32_t* received_rows = nullptr;
  const int32_t* sent_routes = nullptr;
  const int32_t* received_routes = nullptr;
  const int32_t* duplicates = nullptr;
  const int32_t* duplicated = nullptr;
  const int32_t* padding = nullptr;
  const int32_t* group_primaries = nullptr;
  const int32_t* group_ends = nullptr;
  const int32_t* group_rows = nullptr;
  const int32_t* token_ends = nullptr;
  const int32_t* token_rows = nullptr;
};

// Memory for the lists of plans of one geometry, used again when a plan is gone: to free it could
// mean to wait for kernels that wait for peers. Used, and outlived, as PlanPool (kernels/cuda).
class ListPool {
 public:
  explicit ListPool(const Geometry& geometry);
  absl::StatusOr<std::unique_ptr<Memory>> Take(StagedDevice& device);
  void GiveBack(std::unique_ptr<Memory> memory);

 private:
  const size_t size_bytes_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Memory>> free_;  // guarded by mutex_
};

class StagedPlan final : public PlanHandle {
 public:
  static absl::StatusOr<std::shared_ptr<const StagedPlan>> Create(
      StagedDevice& device, const std::shared_ptr<ListPool>& pool, Sequence sequence,
      int32_t token_count, const GroupPlan& plan);
  ~StagedPlan() override;

  ObjectTag tag() const override { return facts_.tag; }
  RankId rank() const { return rank_; }
  const PlanFacts& facts() const { return facts_; }
  const PlanTensors& tensors() const { return tensors_; }
  const RowLists& lists() const { return lists_; }
  const ListsView& view() const { return view_; }
  const PlanPtr& of_backend() const { return of_backend_; }

 private:
  StagedPlan() = default;
  absl::Status WriteLists(StagedDevice& device);

  std::shared_ptr<ListPool> pool_;
  std::unique_ptr<Memory> memory_;
  PlanFacts facts_;
  RankId rank_;
  PlanTensors tensors_;
  RowLists lists_;
  ListsView view_;
  PlanPtr of_backend_;
};

// The plan behind a handle. INVALID_ARGUMENT, naming what the handle carries and what is wanted,
// unless this rank's data path of this buffer and generation made it.
absl::StatusOr<std::shared_ptr<const StagedPlan>> StagedPlanOf(const RankShape& shape,
                                                               const PlanPtr& plan);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_STAGED_STAGED_PLAN_H_
