// How many SMs the buffers of one device have reserved. Kernels that move a buffer's rows take no
// more than its own share, so that the operations of different buffers cannot starve each other,
// and all blocks of a kernel that wait for each other can run at once (grid_barrier.cuh).
#ifndef PERIGEE_KERNELS_CUDA_SM_BUDGET_H_
#define PERIGEE_KERNELS_CUDA_SM_BUDGET_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/statusor.h"

namespace perigee {

// Thread-safe.
class SmBudget {
 public:
  explicit SmBudget(int32_t total) : total_(total) {}

  // Given back by its destructor.
  class Share {
   public:
    Share(std::shared_ptr<SmBudget> budget, int32_t sms) : budget_(std::move(budget)), sms_(sms) {}
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    int32_t sms() const { return sms_; }

   private:
    const std::shared_ptr<SmBudget> budget_;
    const int32_t sms_;
  };

  // RESOURCE_EXHAUSTED, with the numbers, where the shares would exceed the total.
  static absl::StatusOr<std::unique_ptr<Share>> Reserve(const std::shared_ptr<SmBudget>& budget,
                                                        int32_t sms);

 private:
  const int32_t total_;
  std::mutex mutex_;
  int32_t reserved_ = 0;  // guarded by mutex_
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_SM_BUDGET_H_
