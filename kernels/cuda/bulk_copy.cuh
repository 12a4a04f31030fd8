// Hopper's bulk copies between global and shared memory. They run beside the threads: loads
// complete on an mbarrier, stores in groups that the issuing thread waits for.
// Source: PTX ISA, cp.async.bulk and mbarrier.
#ifndef PERIGEE_KERNELS_CUDA_BULK_COPY_CUH_
#define PERIGEE_KERNELS_CUDA_BULK_COPY_CUH_

#include <cstddef>
#include <cstdint>

namespace perigee {

__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// Of the shared memory that rows pass through: at an odd multiple of 16 bytes bulk copies take a
// quarter longer.
inline constexpr int kSharedAlignment = 128;

// One thread arrives per phase.
__device__ inline void InitArrival(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SharedAddress(barrier)) : "memory");
}
// Before its memory is used for anything else, another InitArrival among it. No phase is under way.
__device__ inline void EndArrival(uint64_t* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}
// What threads have written to shared or global memory, before what bulk copies do next.
__device__ inline void FenceBeforeBulk() { asm volatile("fence.proxy.async;" ::: "memory"); }

__device__ inline void Arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SharedAddress(barrier)) : "memory");
}
__device__ inline void ArriveExpecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)),
      "r"(bytes)
      : "memory");
}
// Until the phase of this parity is over: a copy within the machine, which ends by itself.
__device__ inline void AwaitPhase(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(SharedAddress(barrier)),
      "r"(parity)
      : "memory");
}

// Addresses and size are multiples of 16 bytes.
__device__ inline void BulkLoad(void* shared, const void* global, uint32_t bytes,
                                uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(shared)),
      "l"(__cvta_generic_to_global(global)), "r"(bytes), "r"(SharedAddress(barrier))
      : "memory");
}
__device__ inline void BulkStore(void* global, const void* shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                   __cvta_generic_to_global(global)),
               "r"(SharedAddress(shared)), "r"(bytes)
               : "memory");
}
// This thread's stores since the last call form a group, also where there are none.
__device__ inline void CommitStores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most kGroups of this thread's groups still read shared memory.
template <int kGroups>
__device__ inline void AwaitStoresRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}
// Until all of this thread's stores are done and seen by it.
__device__ inline void AwaitStores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_BULK_COPY_CUH_
