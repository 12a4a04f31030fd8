// Access to words that others, in this process or another, may read or write at the same time.
// Order comes from elsewhere, a barrier or a counter; these accesses only keep each word whole.
#ifndef PERIGEE_KERNELS_COMMON_SHARED_WORDS_H_
#define PERIGEE_KERNELS_COMMON_SHARED_WORDS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace perigee {

template <typename T>
concept SharedWords = std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint64_t) == 0 &&
                      alignof(T) >= alignof(uint64_t);

// A private copy: what is checked is what is used, whatever happens to the original meanwhile.
template <SharedWords T>
T LoadShared(T& shared) {
  uint64_t words[sizeof(T) / sizeof(uint64_t)];
  uint64_t* from = reinterpret_cast<uint64_t*>(&shared);
  for (uint64_t& word : words) {
    word = std::atomic_ref<uint64_t>(*from++).load(std::memory_order_relaxed);
  }
  T copy;
  std::memcpy(&copy, words, sizeof(T));
  return copy;
}

template <SharedWords T>
void StoreShared(T& shared, const T& value) {
  uint64_t words[sizeof(T) / sizeof(uint64_t)];
  std::memcpy(words, &value, sizeof(T));
  uint64_t* to = reinterpret_cast<uint64_t*>(&shared);
  for (uint64_t word : words) {
    std::atomic_ref<uint64_t>(*to++).store(word, std::memory_order_relaxed);
  }
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_COMMON_SHARED_WORDS_H_
