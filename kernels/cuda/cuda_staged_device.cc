#include "kernels/cuda/cuda_staged_device.h"

#include <vector>

#include "kernels/cuda/expert_scratch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/settle.h"
#include "kernels/cuda/staged_launch.h"
#include "kernels/device/copy.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"
#include "kernels/device/private_device_memory.h"

namespace perigee {
namespace {

RowListView ViewOf(const Indexed<BFloat16>& list) { return {list.data, list.index}; }
// The kernels take one kind of list, and write to none that they read.
RowListView ViewOf(const Indexed<const BFloat16>& list) {
  return {const_cast<BFloat16*>(list.data), list.index};
}
FloatListView ViewOf(const Indexed<float>& list) { return {list.data, list.index}; }
FloatListView ViewOf(const Indexed<const float>& list) {
  return {const_cast<float*>(list.data), list.index};
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaStagedDevice>> CudaStagedDevice::Create(
    int device, const DataPathOptions& options, std::unique_ptr<SmBudget::Share> sms) {
  absl::StatusOr<CudaRank> rank = CreateCudaRank(device, options, std::move(sms));
  if (!rank.ok()) return rank.status();
  if (options.intermediate > 0) {
    const auto scratch = TakeExpertScratch(*rank, options.intermediate);
    if (!scratch.ok()) return scratch.status();
  }
  return std::unique_ptr<CudaStagedDevice>(new CudaStagedDevice(*std::move(rank)));
}

// Nothing that kernels use may go before they have ended.
CudaStagedDevice::~CudaStagedDevice() { LogCudaError(Wait()); }

template <typename Launch>
absl::Status CudaStagedDevice::Queue(const char* what, const Launch& launch) {
  const auto scope = DeviceScope::Enter(rank_.device);
  if (!scope.ok()) return scope.status();
  return LaunchStatus(rank_, launch(rank_.local_target()), what);
}

absl::StatusOr<std::unique_ptr<Memory>> CudaStagedDevice::Allocate(size_t size_bytes) {
  return PrivateDeviceMemory::Allocate(rank_.device, size_bytes);
}

absl::Status CudaStagedDevice::Read(absl::Span<std::byte> to, const std::byte* from) {
  return to.empty() ? absl::OkStatus() : CopyFromDevice(rank_.device, to, from);
}

absl::Status CudaStagedDevice::Write(std::byte* to, absl::Span<const std::byte> from) {
  return from.empty() ? absl::OkStatus() : CopyToDevice(rank_.device, to, from);
}

absl::Status CudaStagedDevice::CopyRows(const Indexed<BFloat16>& to,
                                        const Indexed<const BFloat16>& from, int64_t count) {
  if (count == 0) return absl::OkStatus();
  return Queue("copy of rows", [&](const LaunchTarget& target) {
    return LaunchCopyRows(target, ViewOf(to), ViewOf(from), count, rank_.hidden);
  });
}

absl::Status CudaStagedDevice::CopyFloats(const Indexed<float>& to,
                                          const Indexed<const float>& from, int64_t count) {
  if (count == 0) return absl::OkStatus();
  return Queue("copy of weights", [&](const LaunchTarget& target) {
    return LaunchCopyFloats(target, ViewOf(to), ViewOf(from), count);
  });
}

absl::Status CudaStagedDevice::SumRows(const RowSums& sums) {
  if (sums.count == 0) return absl::OkStatus();
  const RowSumsView view{ViewOf(sums.to), sums.from, sums.ends, sums.rows, sums.count};
  return Queue("sum of rows", [&](const LaunchTarget& target) {
    return LaunchSumRows(target, view, rank_.hidden);
  });
}

absl::Status CudaStagedDevice::AddFloats(float* to, const float* from, int64_t count) {
  return Queue("sum of gradients", [&](const LaunchTarget& target) {
    return LaunchAddFloats(target, to, from, count);
  });
}

absl::Status CudaStagedDevice::Wait() {
  const auto scope = DeviceScope::Enter(rank_.device);
  return scope.ok() ? WaitForStream(rank_) : scope.status();
}

absl::StatusOr<PlanPtr> CudaStagedDevice::MakePlan(Sequence sequence, int32_t token_count,
                                                   const GroupPlan& plan) {
  auto made = CudaPlan::Create(rank_.plans, rank_, sequence, token_count);
  if (!made.ok()) return made.status();
  const PlanView& view = (*made)->view();
  // What run_experts reads.
  const auto write = [&](int32_t* to, absl::Span<const int32_t> values) {
    const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
    return Write(reinterpret_cast<std::byte*>(to),
                 absl::MakeConstSpan(bytes, values.size() * sizeof(int32_t)));
  };
  absl::Status status = write(view.cu_seqlens, plan.placement.cu_seqlens_of(rank_.rank));
  if (status.ok()) {
    status = write(view.zero_fill_ranges, plan.placement.zero_fill_of(rank_.rank));
  }
  if (status.ok()) status = write(view.experts_to_copy, plan.placement.experts_to_copy);
  if (!status.ok()) return status;
  return PlanPtr(*std::move(made));
}

absl::Status CudaStagedDevice::RunExperts(const PlanPtr& plan, const ExpertWeights& weights,
                                          const RunExpertsInput& input) {
  const auto scope = DeviceScope::Enter(rank_.device);
  if (!scope.ok()) return scope.status();
  absl::Status status = QueueRunExperts(rank_, plan, weights, input);
  return status.ok() ? Settle(rank_) : status;
}

}  // namespace perigee
