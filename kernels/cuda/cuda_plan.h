// A plan as the CUDA backend keeps it: tensors in device memory. The host knows who made it and for
// how many tokens; what it says is read on the device.
#ifndef PERIGEE_KERNELS_CUDA_CUDA_PLAN_H_
#define PERIGEE_KERNELS_CUDA_CUDA_PLAN_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/plan_view.h"
#include "kernels/device/private_device_memory.h"
#include "kernels/rank/argument_checks.h"

namespace perigee {

// Device memory for plans of one geometry, used again when a plan is gone. All plans of a pool
// belong to one data path, whose kernels run in one order: a block that a new plan takes may still
// be read by kernels queued for the old one, which come first. Thread-safe; outlives the data path
// if plans do.
class PlanPool {
 public:
  PlanPool(int device, const Geometry& geometry)
      : device_(device), layout_(PlanLayout::Create(geometry)) {}

  absl::StatusOr<std::unique_ptr<PrivateDeviceMemory>> Take();
  void GiveBack(std::unique_ptr<PrivateDeviceMemory> memory);
  const PlanLayout& layout() const { return layout_; }

 private:
  const int device_;
  const PlanLayout layout_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PrivateDeviceMemory>> free_;  // guarded by mutex_
};

// Immutable after its dispatch, but for the note that the dispatch has failed.
class CudaPlan final : public PlanHandle {
 public:
  static absl::StatusOr<std::shared_ptr<CudaPlan>> Create(const std::shared_ptr<PlanPool>& pool,
                                                          const RankShape& shape, Sequence sequence,
                                                          int32_t token_count);
  CudaPlan(std::shared_ptr<PlanPool> pool, std::unique_ptr<PrivateDeviceMemory> memory,
           const PlanFacts& facts, RankId rank);
  ~CudaPlan() override;

  ObjectTag tag() const override { return facts_.tag; }
  RankId rank() const { return rank_; }
  // used_rows is NvS: how many there are is known to the device alone.
  const PlanFacts& facts() const { return facts_; }
  const PlanView& view() const { return view_; }

  // The dispatch that was to make it has ended early.
  void MakeVoid() { is_void_.store(true, std::memory_order_relaxed); }
  bool is_void() const { return is_void_.load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<PlanPool> pool_;
  std::unique_ptr<PrivateDeviceMemory> memory_;
  const PlanFacts facts_;
  const RankId rank_;
  const PlanView view_;
  std::atomic<bool> is_void_ = false;
};

// The plan behind a handle. INVALID_ARGUMENT, naming what the handle carries and what is wanted,
// unless this rank's data path of this buffer and generation made it.
absl::StatusOr<std::shared_ptr<const CudaPlan>> CudaPlanOf(const RankShape& shape,
                                                           const PlanPtr& plan);

// Copies the plan's tensors out; its dispatch has ended.
absl::StatusOr<PlanTensors> ReadPlanTensors(int device, const RankShape& shape,
                                            const CudaPlan& plan);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_CUDA_PLAN_H_
