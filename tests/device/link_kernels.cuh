// Plain copies by a grid of a given size, two ways: by threads, and by bulk copies through stages
// in shared memory. Either end may be a peer's memory.
#ifndef PERIGEE_TESTS_DEVICE_LINK_KERNELS_CUH_
#define PERIGEE_TESTS_DEVICE_LINK_KERNELS_CUH_

#include <cstddef>
#include <cstdint>

namespace perigee {

inline constexpr int kLinkThreads = 1024;
inline constexpr int kLinkVectors = 4;  // loads in flight per thread before the first store

// Nearly all of an SM's shared memory: with fewer bytes in flight few blocks cannot fill a link.
inline constexpr int kLinkStages = 12;
inline constexpr int kLinkStageBytes = 14'336;  // a row of 7,168 elements
inline constexpr int kLinkStoresInFlight = 4;   // so kLinkStages - 4 loads
inline constexpr int kLinkSharedBytes = kLinkStages * kLinkStageBytes;

// bytes is a multiple of 16, as are both addresses.
__global__ void __launch_bounds__(kLinkThreads)
    LinkCopyKernel(uint4* to, const uint4* from, int64_t bytes) {
  const int64_t count = bytes / static_cast<int64_t>(sizeof(uint4));
  const int64_t step = int64_t{gridDim.x} * kLinkThreads;
  int64_t at = int64_t{blockIdx.x} * kLinkThreads + threadIdx.x;
  for (; at + (kLinkVectors - 1) * step < count; at += kLinkVectors * step) {
    uint4 held[kLinkVectors];
#pragma unroll
    for (int i = 0; i < kLinkVectors; ++i) held[i] = from[at + i * step];
#pragma unroll
    for (int i = 0; i < kLinkVectors; ++i) to[at + i * step] = held[i];
  }
  for (; at < count; at += step) to[at] = from[at];
}

__device__ inline uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// One arrival, that of the bytes of a load.
__device__ inline void InitArrival(uint64_t* arrival) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(SharedAddress(arrival)) : "memory");
}
__device__ inline void AwaitArrival(uint64_t* arrival, uint32_t parity) {
  uint32_t arrived = 0;
  while (arrived == 0) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}\n"
        : "=r"(arrived)
        : "r"(SharedAddress(arrival)), "r"(parity)
        : "memory");
  }
}
__device__ inline void StartLoad(std::byte* stage, const std::byte* from, uint32_t bytes,
                                 uint64_t* arrival) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(arrival)),
      "r"(bytes)
      : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(SharedAddress(stage)),
      "l"(from), "r"(bytes), "r"(SharedAddress(arrival))
      : "memory");
}
__device__ inline void StartStore(std::byte* to, const std::byte* stage, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(SharedAddress(stage)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// One thread of each block moves every gridDim.x-th piece; the stages form a ring.
__global__ void __launch_bounds__(32)
    LinkBulkCopyKernel(std::byte* to, const std::byte* from, int64_t bytes) {
  extern __shared__ __align__(128) std::byte stages[];
  __shared__ uint64_t arrivals[kLinkStages];
  if (threadIdx.x != 0) return;
  for (uint64_t& arrival : arrivals) InitArrival(&arrival);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");

  const int64_t pieces = (bytes + kLinkStageBytes - 1) / kLinkStageBytes;
  const int64_t own = (pieces - blockIdx.x + gridDim.x - 1) / gridDim.x;
  const auto offset_of = [](int64_t i) {
    return (int64_t{blockIdx.x} + i * gridDim.x) * kLinkStageBytes;
  };
  const auto size_of = [&](int64_t i) {
    const int64_t left = bytes - offset_of(i);
    return static_cast<uint32_t>(left < kLinkStageBytes ? left : kLinkStageBytes);
  };
  const auto load = [&](int64_t i) {
    const int stage = static_cast<int>(i % kLinkStages);
    StartLoad(stages + stage * kLinkStageBytes, from + offset_of(i), size_of(i), &arrivals[stage]);
  };

  constexpr int kAhead = kLinkStages - kLinkStoresInFlight;
  for (int64_t i = 0; i < kAhead && i < own; ++i) load(i);
  for (int64_t i = 0; i < own; ++i) {
    const int stage = static_cast<int>(i % kLinkStages);
    AwaitArrival(&arrivals[stage], static_cast<uint32_t>(i / kLinkStages % 2));
    StartStore(to + offset_of(i), stages + stage * kLinkStageBytes, size_of(i));
    if (i + kAhead >= own) continue;
    // The store that has last read the stage which the next load fills.
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLinkStoresInFlight) : "memory");
    load(i + kAhead);
  }
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// The i-th word of the stream that a seed stands for (splitmix64).
__device__ inline uint64_t RandomWord(uint64_t seed, int64_t i) {
  uint64_t word = (seed << 40) + static_cast<uint64_t>(i + 1) * 0x9E3779B97F4A7C15u;
  word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
  word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
  return word ^ (word >> 31);
}

__global__ void __launch_bounds__(kLinkThreads)
    LinkFillKernel(uint64_t* to, int64_t words, uint64_t seed) {
  const int64_t step = int64_t{gridDim.x} * kLinkThreads;
  for (int64_t i = int64_t{blockIdx.x} * kLinkThreads + threadIdx.x; i < words; i += step) {
    to[i] = RandomWord(seed, i);
  }
}

// Adds to *differing how many words are not those of the seed.
__global__ void __launch_bounds__(kLinkThreads)
    LinkCompareKernel(const uint64_t* data, int64_t words, uint64_t seed,
                      unsigned long long* differing) {
  unsigned long long own = 0;
  const int64_t step = int64_t{gridDim.x} * kLinkThreads;
  for (int64_t i = int64_t{blockIdx.x} * kLinkThreads + threadIdx.x; i < words; i += step) {
    if (data[i] != RandomWord(seed, i)) ++own;
  }
  if (own != 0) atomicAdd(differing, own);
}

}  // namespace perigee

#endif  // PERIGEE_TESTS_DEVICE_LINK_KERNELS_CUH_
