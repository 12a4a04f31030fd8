#include "kernels/cuda/cuda_target.h"

namespace perigee {

CudaTarget::CudaTarget(const CudaRank& rank, std::shared_ptr<CudaPlan> plan)
    : plan_(std::move(plan)) {
  producer_.dst = plan_->view().dst;
  for (const ShardView& shard : rank.shards) producer_.rows.push_back(shard.rows);
  producer_.logical_rows = rank.logical_rows();
  // Every rank maps every shard for writing.
  producer_.access.assign(rank.shards.size(), kFullAccess);
}

absl::StatusOr<const CudaTarget*> CudaTargetOf(const TargetPtr& target) {
  if (target == nullptr) return absl::InvalidArgumentError("target is null");
  const auto* cuda_target = dynamic_cast<const CudaTarget*>(target.get());
  if (cuda_target != nullptr) return cuda_target;
  return absl::InvalidArgumentError("target was made by another backend, expected cuda");
}

OperationMark NoteLocal(CudaRank& rank, Operation operation) {
  const OperationMark mark = MarkOf(rank, operation);
  rank.queued.push_back(
      {.mark = mark, .live_before = rank.shard_live(), .source_before = rank.source.sequence()});
  return mark;
}

}  // namespace perigee
