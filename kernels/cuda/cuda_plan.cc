#include "kernels/cuda/cuda_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device/copy.h"

namespace perigee {
namespace {

template <typename T>
absl::Status Read(int device, const T* from, size_t count, std::vector<T>& to) {
  to.resize(count);
  if (count == 0) return absl::OkStatus();
  auto* bytes = reinterpret_cast<std::byte*>(to.data());
  return CopyFromDevice(device, absl::MakeSpan(bytes, count * sizeof(T)),
                        reinterpret_cast<const std::byte*>(from));
}

// The lists in order of primary rows: the kernel makes them in that of its warps.
absl::Status ReadDuplicates(int device, const CudaPlan& plan, PlanTensors& tensors) {
  const PlanView& view = plan.view();
  std::vector<PlanCounts> counts;
  if (absl::Status status = Read(device, view.counts, 1, counts); !status.ok()) return status;
  std::vector<DeviceDuplicateGroup> groups;
  absl::Status status = Read(device, view.duplicate_groups, counts[0].duplicate_groups, groups);
  if (!status.ok()) return status;
  std::vector<int32_t> rows;
  status = Read(device, view.duplicate_rows, counts[0].duplicate_rows, rows);
  if (!status.ok()) return status;
  std::sort(groups.begin(), groups.end(),
            [](const auto& a, const auto& b) { return a.primary_row < b.primary_row; });
  for (const DeviceDuplicateGroup& group : groups) {
    const auto start = static_cast<int32_t>(tensors.duplicate_rows.size());
    tensors.duplicate_groups.insert(tensors.duplicate_groups.end(),
                                    {group.primary_row, start, group.count()});
    const auto first = rows.begin() + group.start;
    tensors.duplicate_rows.insert(tensors.duplicate_rows.end(), first, first + group.count());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrivateDeviceMemory>> PlanPool::Take() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<PrivateDeviceMemory> memory = std::move(free_.back());
      free_.pop_back();
      return memory;
    }
  }
  return PrivateDeviceMemory::Allocate(device_, layout_.size_bytes);
}

void PlanPool::GiveBack(std::unique_ptr<PrivateDeviceMemory> memory) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(std::move(memory));
}

CudaPlan::CudaPlan(std::shared_ptr<PlanPool> pool, std::unique_ptr<PrivateDeviceMemory> memory,
                   const PlanFacts& facts, RankId rank)
    : pool_(std::move(pool)),
      memory_(std::move(memory)),
      facts_(facts),
      rank_(rank),
      view_(pool_->layout().View(memory_->data())) {}

CudaPlan::~CudaPlan() { pool_->GiveBack(std::move(memory_)); }

absl::StatusOr<std::shared_ptr<CudaPlan>> CudaPlan::Create(const std::shared_ptr<PlanPool>& pool,
                                                           const RankShape& shape,
                                                           Sequence sequence, int32_t token_count) {
  absl::StatusOr<std::unique_ptr<PrivateDeviceMemory>> memory = pool->Take();
  if (!memory.ok()) return memory.status();
  const PlanFacts facts{shape.TagOf(sequence), token_count, shape.logical_rows()};
  return std::make_shared<CudaPlan>(pool, *std::move(memory), facts, shape.rank);
}

absl::StatusOr<std::shared_ptr<const CudaPlan>> CudaPlanOf(const RankShape& shape,
                                                           const PlanPtr& plan) {
  if (plan == nullptr) return absl::InvalidArgumentError("plan is null");
  auto cuda_plan = std::dynamic_pointer_cast<const CudaPlan>(plan);
  if (cuda_plan == nullptr) {
    return absl::InvalidArgumentError("plan was made by another backend, expected cuda");
  }
  absl::Status status = CheckPlanOwner(shape, cuda_plan->tag(), cuda_plan->rank());
  if (!status.ok()) return status;
  if (cuda_plan->is_void()) {
    return absl::InvalidArgumentError(absl::StrCat("the dispatch of sequence ",
                                                   cuda_plan->tag().sequence.value,
                                                   " ended early, so its plan is void"));
  }
  return cuda_plan;
}

absl::StatusOr<PlanTensors> ReadPlanTensors(int device, const RankShape& shape,
                                            const CudaPlan& plan) {
  const Geometry& geometry = shape.geometry;
  const PlanView& view = plan.view();
  PlanTensors tensors;
  const absl::Status reads[] = {
      Read(device, view.dst, geometry.routes(), tensors.dst),
      Read(device, view.cu_seqlens, geometry.groups(), tensors.cu_seqlens),
      Read(device, view.zero_fill_ranges, size_t{2} * geometry.groups(), tensors.zero_fill_ranges),
      Read(device, view.experts_to_copy, size_t(geometry.ranks) * geometry.slots,
           tensors.experts_to_copy),
      Read(device, view.load, geometry.ranks, tensors.load),
      Read(device, view.home_load, geometry.ranks, tensors.home_load),
      Read(device, view.remote_stats, 2, tensors.remote_stats),
      ReadDuplicates(device, plan, tensors),
  };
  for (const absl::Status& status : reads) {
    if (!status.ok()) return status;
  }
  return tensors;
}

}  // namespace perigee
