// What home blocks and slots say that they hold, read and written on the device. Whoever loads a
// home block sets its version to 0 first and writes the header last: a block that holds the wanted
// header before and after its matrices were read has not been changed in between.
#ifndef PERIGEE_KERNELS_CUDA_WEIGHTS_WORDS_CUH_
#define PERIGEE_KERNELS_CUDA_WEIGHTS_WORDS_CUH_

#include <cstdint>

#include "kernels/cuda/device_words.cuh"
#include "kernels/cuda/weights_view.h"

namespace perigee {

// Between reads of the matrices and of the header: neither moves past it.
__device__ inline HomeHeader ReadHome(const WeightsView& weights, int32_t rank) {
  __threadfence_system();
  const auto* at =
      reinterpret_cast<const HomeHeader*>(weights.home[rank] + weights.home_layout.header);
  const HomeHeader header = LoadWords(at);
  __threadfence_system();
  return header;
}
// Whether the home holds the weights, before they are read: generic reads do not move ahead of it.
__device__ inline bool HomeIsReady(const WeightsView& weights, int32_t rank) {
  const auto* at =
      reinterpret_cast<const HomeHeader*>(weights.home[rank] + weights.home_layout.header);
  const bool is_version = LoadAcquire(&at->version) == weights.version;
  return is_version && __ldcg(&at->layer) == weights.layer;
}
__device__ inline bool HomeHolds(const WeightsView& weights, const HomeHeader& header) {
  return header.version == weights.version && header.layer == weights.layer;
}
__device__ inline SlotTag* SlotTagAt(const WeightsView& weights, int32_t slot) {
  return reinterpret_cast<SlotTag*>(weights.slots + weights.slot_layout.header) + slot;
}
__device__ inline SlotTag WantedTag(const WeightsView& weights, int32_t expert) {
  return SlotTag{weights.version, weights.layer, expert};
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_WEIGHTS_WORDS_CUH_
