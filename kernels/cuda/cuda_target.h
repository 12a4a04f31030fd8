// A target of a direct publication as this backend keeps it.
#ifndef PERIGEE_KERNELS_CUDA_CUDA_TARGET_H_
#define PERIGEE_KERNELS_CUDA_CUDA_TARGET_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_rank.h"
#include "kernels/direct_publication.h"
#include "kernels/rank/publication_checks.h"

namespace perigee {

class CudaTarget final : public TargetHandle {
 public:
  CudaTarget(const CudaRank& rank, std::shared_ptr<CudaPlan> plan);

  ObjectTag tag() const override { return plan_->tag(); }
  int32_t token_count() const override { return plan_->facts().token_count; }
  const ProducerView& producer() const override { return producer_; }
  const std::shared_ptr<CudaPlan>& plan() const { return plan_; }
  TargetFacts facts() const { return {tag(), plan_->rank(), token_count()}; }

 private:
  const std::shared_ptr<CudaPlan> plan_;  // complete when it is published
  ProducerView producer_;
};

// INVALID_ARGUMENT: null, or another backend's.
absl::StatusOr<const CudaTarget*> CudaTargetOf(const TargetPtr& target);

// A local step of a publication, or of its producer, noted as queued.
OperationMark NoteLocal(CudaRank& rank, Operation operation);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_CUDA_TARGET_H_
