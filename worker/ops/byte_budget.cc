#include "worker/ops/byte_budget.h"

#include "absl/strings/str_cat.h"

namespace perigee {

absl::StatusOr<ByteBudget::Share> ByteBudget::Take(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t left = limit_bytes_ - used_bytes_;
  if (bytes > left) {
    return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes are wanted for a tensor, ",
                                                     left, " of ", limit_bytes_, " are left"));
  }
  used_bytes_ += bytes;
  return Share(this, bytes);
}

uint64_t ByteBudget::used_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return used_bytes_;
}

void ByteBudget::GiveBack(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  used_bytes_ -= bytes;
}

}  // namespace perigee
