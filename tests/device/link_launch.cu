#include <cuda_runtime_api.h>

#include "tests/device/link_kernels.cuh"
#include "tests/device/link_launch.h"

namespace perigee {
namespace {

constexpr int kWholeDevice = 264;  // blocks; two on each SM of an H200

}  // namespace

int LaunchLinkCopy(cudaStream_t stream, int blocks, std::byte* to, const std::byte* from,
                   int64_t bytes) {
  LinkCopyKernel<<<blocks, kLinkThreads, 0, stream>>>(reinterpret_cast<uint4*>(to),
                                                      reinterpret_cast<const uint4*>(from), bytes);
  return cudaGetLastError();
}

int LaunchLinkBulkCopy(cudaStream_t stream, int blocks, std::byte* to, const std::byte* from,
                       int64_t bytes) {
  // Of each device: more than a kernel gets unasked.
  const cudaError_t error = cudaFuncSetAttribute(
      LinkBulkCopyKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kLinkSharedBytes);
  if (error != cudaSuccess) return error;
  LinkBulkCopyKernel<<<blocks, 32, kLinkSharedBytes, stream>>>(to, from, bytes);
  return cudaGetLastError();
}

int LaunchLinkFill(cudaStream_t stream, std::byte* to, int64_t bytes, uint64_t seed) {
  LinkFillKernel<<<kWholeDevice, kLinkThreads, 0, stream>>>(
      reinterpret_cast<uint64_t*>(to), bytes / static_cast<int64_t>(sizeof(uint64_t)), seed);
  return cudaGetLastError();
}

int LaunchLinkCompare(cudaStream_t stream, const std::byte* data, int64_t bytes, uint64_t seed,
                      std::byte* differing) {
  LinkCompareKernel<<<kWholeDevice, kLinkThreads, 0, stream>>>(
      reinterpret_cast<const uint64_t*>(data), bytes / static_cast<int64_t>(sizeof(uint64_t)), seed,
      reinterpret_cast<unsigned long long*>(differing));
  return cudaGetLastError();
}

}  // namespace perigee
