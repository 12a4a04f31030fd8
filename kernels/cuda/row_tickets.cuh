// Rows dealt to warps as these come for them: blocks on SMs that reach memory at different rates
// end at the same time.
#ifndef PERIGEE_KERNELS_CUDA_ROW_TICKETS_CUH_
#define PERIGEE_KERNELS_CUDA_ROW_TICKETS_CUH_

#include <cstdint>

namespace perigee {

// One warp's side. The counter is zero before the launch and shared by all its warps; `end` is
// below 2^31. Short rows are dealt several at a time.
class RowTickets {
 public:
  // All lanes.
  __device__ RowTickets(uint32_t* counter, int64_t end, uint32_t row_bytes)
      : counter_(counter), end_(end), batch_(row_bytes >= 4096 ? 1 : 4096 / row_bytes) {
    Request();
  }

  // The next row of this warp, -1 when there is none. All lanes.
  __device__ int64_t Take() {
    if (next_ >= end_ && left_ != 0) return -1;
    if (left_ == 0) {
      // Asked for when the last ones were taken: the answer is here by now.
      next_ = int64_t{__shfl_sync(0xffffffffu, ticket_, 0)} * batch_;
      left_ = batch_;
      if (next_ < end_) Request();
    }
    if (next_ >= end_) return -1;
    --left_;
    return next_++;
  }

 private:
  __device__ void Request() {
    if (threadIdx.x % 32 == 0) ticket_ = atomicAdd(counter_, 1u);
  }

  uint32_t* counter_;
  int64_t end_;
  uint32_t batch_;
  uint32_t ticket_ = 0;  // of lane 0
  uint32_t left_ = 0;
  int64_t next_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_ROW_TICKETS_CUH_
