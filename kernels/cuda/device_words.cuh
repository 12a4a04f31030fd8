// Device-side access to words that a peer or the host may touch at the same time, the device's
// clock, and the raising of a report.
#ifndef PERIGEE_KERNELS_CUDA_DEVICE_WORDS_CUH_
#define PERIGEE_KERNELS_CUDA_DEVICE_WORDS_CUH_

#include <cstdint>

#include "kernels/cuda/path_view.h"

namespace perigee {

// All that happened before the store is visible to whoever loads the value with acquire: system
// scope, so across GPUs and to the host.
__device__ inline void StoreRelease(uint64_t* word, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ inline uint64_t LoadAcquire(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
// The same among the blocks of this device.
__device__ inline void StoreReleaseOnDevice(uint64_t* word, uint64_t value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
__device__ inline uint64_t LoadAcquireOnDevice(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
// Words whose order does not matter, but that must be read and written whole and not from a cache.
__device__ inline uint64_t LoadRelaxed(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline uint32_t LoadRelaxed(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline void StoreRelaxed(uint64_t* word, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// A private copy of a struct in shared words: what is checked is what is used.
template <typename T>
__device__ T LoadWords(const T* shared) {
  static_assert(sizeof(T) % sizeof(uint64_t) == 0);
  union Copy {
    uint64_t words[sizeof(T) / sizeof(uint64_t)];
    T value;
    __device__ Copy() {}
  } copy;
  const uint64_t* from = reinterpret_cast<const uint64_t*>(shared);
  for (unsigned i = 0; i < sizeof(T) / sizeof(uint64_t); ++i) copy.words[i] = LoadRelaxed(from + i);
  return copy.value;
}
template <typename T>
__device__ void StoreWords(T* shared, const T& value) {
  static_assert(sizeof(T) % sizeof(uint64_t) == 0);
  const uint64_t* from = reinterpret_cast<const uint64_t*>(&value);
  uint64_t* to = reinterpret_cast<uint64_t*>(shared);
  for (unsigned i = 0; i < sizeof(T) / sizeof(uint64_t); ++i) StoreRelaxed(to + i, from[i]);
}

// Nanoseconds; the same for all kernels of a device.
__device__ inline uint64_t DeviceTime() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Whether the operation that a kernel belongs to still goes on. Written by kernels that have ended,
// or by other threads of this one, whose order with this thread does not matter.
__device__ inline bool Stopped(const PathView& path) {
  return *reinterpret_cast<volatile uint32_t*>(&path.state->stop) != 0;
}

// True for the one thread that may fill in the report: of several failures the first is told.
__device__ inline bool ClaimReport(const PathView& path, PathStop stop) {
  return atomicCAS(&path.state->stop, 0u, static_cast<uint32_t>(stop)) == 0;
}
// For failures that nothing can follow, also where an earlier one has its report already.
__device__ inline bool BreakPath(const PathView& path) {
  path.page->broken = 1;
  return atomicMax(&path.state->stop, static_cast<uint32_t>(PathStop::kBroken)) == 0;
}
// The report is complete. The host reads it after it has waited for the stream.
__device__ inline void Publish(Report& report, const OperationMark& mark, ReportKind kind) {
  report.operation = mark.operation;
  report.sequence = mark.sequence;
  report.place = mark.place;
  report.kind = static_cast<uint32_t>(kind);
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_DEVICE_WORDS_CUH_
