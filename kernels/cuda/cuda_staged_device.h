// One rank's GPU for a staged data path.
#ifndef PERIGEE_KERNELS_CUDA_CUDA_STAGED_DEVICE_H_
#define PERIGEE_KERNELS_CUDA_CUDA_STAGED_DEVICE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_rank.h"
#include "kernels/cuda/sm_budget.h"
#include "kernels/device/stream.h"
#include "kernels/staged/staged_device.h"

namespace perigee {

class CudaStagedDevice final : public StagedDevice {
 public:
  // Of checked options. INVALID_ARGUMENT where this rank's shard has been used before.
  static absl::StatusOr<std::unique_ptr<CudaStagedDevice>> Create(
      int device, const DataPathOptions& options, std::unique_ptr<SmBudget::Share> sms);
  ~CudaStagedDevice() override;

  const Stream& stream() const { return **rank_.stream; }

  RankShape& shape() override { return rank_; }
  Progress& progress() override { return *rank_.progress; }
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(size_t size_bytes) override;
  absl::Status Read(absl::Span<std::byte> to, const std::byte* from) override;
  absl::Status Write(std::byte* to, absl::Span<const std::byte> from) override;
  absl::Status CheckAddress(const char* what, const void* address) override {
    return CheckAligned(what, address);
  }
  absl::Status CopyRows(const Indexed<BFloat16>& to, const Indexed<const BFloat16>& from,
                        int64_t count) override;
  absl::Status CopyFloats(const Indexed<float>& to, const Indexed<const float>& from,
                          int64_t count) override;
  absl::Status SumRows(const RowSums& sums) override;
  absl::Status AddFloats(float* to, const float* from, int64_t count) override;
  absl::Status Wait() override;
  absl::StatusOr<PlanPtr> MakePlan(Sequence sequence, int32_t token_count,
                                   const GroupPlan& plan) override;
  absl::Status RunExperts(const PlanPtr& plan, const ExpertWeights& weights,
                          const RunExpertsInput& input) override;
  // What runs here ends by itself.
  void Abort(int32_t, const std::string&) override {}

 private:
  explicit CudaStagedDevice(CudaRank rank) : rank_(std::move(rank)) {}
  template <typename Launch>
  absl::Status Queue(const char* what, const Launch& launch);

  CudaRank rank_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_CUDA_STAGED_DEVICE_H_
