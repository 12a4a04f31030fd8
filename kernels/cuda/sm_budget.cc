#include "kernels/cuda/sm_budget.h"

#include "absl/strings/str_cat.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<SmBudget::Share>> SmBudget::Reserve(
    const std::shared_ptr<SmBudget>& budget, int32_t sms) {
  std::lock_guard<std::mutex> lock(budget->mutex_);
  if (sms < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("SMs of a buffer is ", sms, ", expected 1 or more"));
  }
  if (sms > budget->total_ - budget->reserved_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a buffer needs ", sms, " SMs, but of ", budget->total_,
                     " other buffers have reserved ", budget->reserved_));
  }
  budget->reserved_ += sms;
  return std::make_unique<Share>(budget, sms);
}

SmBudget::Share::~Share() {
  std::lock_guard<std::mutex> lock(budget_->mutex_);
  budget_->reserved_ -= sms_;
}

}  // namespace perigee
