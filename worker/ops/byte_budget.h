// A limit on bytes that many owners share. Thread-safe.
#ifndef PERIGEE_WORKER_OPS_BYTE_BUDGET_H_
#define PERIGEE_WORKER_OPS_BYTE_BUDGET_H_

#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"

namespace perigee {

class ByteBudget {
 public:
  // Bytes taken from a budget, given back by the destructor. The budget outlives it.
  class Share {
   public:
    Share() = default;
    ~Share() {
      if (budget_) budget_->GiveBack(bytes_);
    }
    Share(Share&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }

   private:
    friend class ByteBudget;
    Share(ByteBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}
    ByteBudget* budget_ = nullptr;
    uint64_t bytes_ = 0;
  };

  explicit ByteBudget(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // RESOURCE_EXHAUSTED, naming what is wanted, left and the limit.
  absl::StatusOr<Share> Take(uint64_t bytes);
  uint64_t used_bytes() const;

 private:
  void GiveBack(uint64_t bytes);

  const uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  uint64_t used_bytes_ = 0;  // guarded by mutex_
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_BYTE_BUDGET_H_
