#include "kernels/staged/staged_plan.h"

#include <utility>

#include "kernels/plan/summary.h"

namespace perigee {
namespace {

// Sent tokens, received rows and both kinds of routes; duplicates twice; groups three times, one of
// them with primaries; both lists of tokens; padding. Every route has one row.
size_t MostListBytes(const Geometry& geometry) {
  const int64_t routes = geometry.routes();
  const int64_t padding = geometry.logical_rows() - routes;
  return static_cast<size_t>(10 * routes + geometry.tokens + padding + 1) * sizeof(int32_t);
}

template <typename Values>
std::vector<int32_t> ToVector(const Values& values) {
  return std::vector<int32_t>(values.begin(), values.end());
}

PlanTensors TensorsOf(const GroupPlan& plan, RankId rank) {
  const Placement& placement = plan.placement;
  const DuplicateGroups& duplicates = plan.duplicates[rank.value];
  PlanTensors tensors;
  tensors.dst = ToVector(plan.dst_of(rank));
  tensors.cu_seqlens = ToVector(placement.cu_seqlens_of(rank));
  tensors.zero_fill_ranges = ToVector(placement.zero_fill_of(rank));
  tensors.experts_to_copy = placement.experts_to_copy;
  tensors.load = placement.load;
  tensors.home_load = HomeLoads(placement);
  tensors.remote_stats =
      ToVector(absl::MakeConstSpan(placement.remote_stats).subspan(2 * rank.value, 2));
  for (const DuplicateGroup& group : duplicates.groups) {
    tensors.duplicate_groups.insert(tensors.duplicate_groups.end(),
                                    {group.primary_row, group.start, group.count});
  }
  tensors.duplicate_rows = duplicates.rows;
  return tensors;
}

}  // namespace

ListPool::ListPool(const Geometry& geometry) : size_bytes_(MostListBytes(geometry)) {}

absl::StatusOr<std::unique_ptr<Memory>> ListPool::Take(StagedDevice& device) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<Memory> memory = std::move(free_.back());
      free_.pop_back();
      return memory;
    }
  }
  return device.Allocate(size_bytes_);
}

void ListPool::GiveBack(std::unique_ptr<Memory> memory) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_.push_back(std::move(memory));
}

absl::StatusOr<std::shared_ptr<const StagedPlan>> StagedPlan::Create(
    StagedDevice& device, const std::shared_ptr<ListPool>& pool, Sequence sequence,
    int32_t token_count, const GroupPlan& plan) {
  const RankShape& shape = device.shape();
  absl::StatusOr<std::unique_ptr<Memory>> memory = pool->Take(device);
  if (!memory.ok()) return memory.status();
  std::shared_ptr<StagedPlan> made(new StagedPlan());
  made->pool_ = pool;
  made->memory_ = *std::move(memory);
  made->rank_ = shape.rank;
  made->facts_ = {shape.TagOf(sequence), token_count, plan.placement.used_rows(shape.rank)};
  made->tensors_ = TensorsOf(plan, shape.rank);
  made->lists_ = MakeRowLists(plan, shape.rank);
  if (absl::Status status = made->WriteLists(device); !status.ok()) return status;
  absl::StatusOr<PlanPtr> of_backend = device.MakePlan(sequence, token_count, plan);
  if (!of_backend.ok()) return of_backend.status();
  made->of_backend_ = *std::move(of_backend);
  return made;
}

StagedPlan::~StagedPlan() { pool_->GiveBack(std::move(memory_)); }

absl::Status StagedPlan::WriteLists(StagedDevice& device) {
  std::vector<int32_t> all;
  const auto* first = reinterpret_cast<const int32_t*>(memory_->data());
  const auto place = [&](const std::vector<int32_t>& list, const int32_t*& at) {
    at = first + all.size();
    all.insert(all.end(), list.begin(), list.end());
  };
  place(lists_.sent_tokens, view_.sent_tokens);
  place(lists_.received_rows, view_.received_rows);
  place(lists_.sent_routes, view_.sent_routes);
  place(lists_.received_routes, view_.received_routes);
  place(lists_.duplicates, view_.duplicates);
  place(lists_.duplicated, view_.duplicated);
  place(lists_.padding, view_.padding);
  place(lists_.group_primaries, view_.group_primaries);
  place(lists_.group_ends, view_.group_ends);
  place(lists_.group_rows, view_.group_rows);
  place(lists_.token_ends, view_.token_ends);
  place(lists_.token_rows, view_.token_rows);
  const auto* bytes = reinterpret_cast<const std::byte*>(all.data());
  return device.Write(memory_->data(), absl::MakeConstSpan(bytes, all.size() * sizeof(int32_t)));
}

absl::StatusOr<std::shared_ptr<const StagedPlan>> StagedPlanOf(const RankShape& shape,
                                                               const PlanPtr& plan) {
  if (plan == nullptr) return absl::InvalidArgumentError("plan is null");
  auto staged = std::dynamic_pointer_cast<const StagedPlan>(plan);
  if (staged == nullptr) {
    return absl::InvalidArgumentError(
        "plan was made by another backend or for another transport, expected nccl");
  }
  absl::Status status = CheckPlanOwner(shape, staged->tag(), staged->rank());
  if (!status.ok()) return status;
  return staged;
}

}  // namespace perigee
