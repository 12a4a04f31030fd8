// Arrays of ranks that are threads of one process and may share a device. Freeing device memory
// waits for the device's kernels, and so, where a rank has begun its next operation and waits in it
// for the others, for the very rank that frees: such arrays are kept until all ranks are through.
#ifndef PERIGEE_TESTS_CONTRACT_KEPT_ARRAYS_H_
#define PERIGEE_TESTS_CONTRACT_KEPT_ARRAYS_H_

#include <memory>
#include <mutex>
#include <vector>

#include "kernels/backend.h"
#include "tests/contract/device_array.h"

namespace perigee {

// Add from any thread; Clear, and the destructor, when no rank runs.
class KeptArrays {
 public:
  // The address of a copy of `values`.
  template <typename T>
  T* Add(Backend& backend, const std::vector<T>& values) {
    auto array = std::make_shared<DeviceArray<T>>(backend, values);
    std::lock_guard<std::mutex> lock(mutex_);
    arrays_.push_back(array);
    return array->data();
  }
  void Clear() { arrays_.clear(); }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> arrays_;
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_KEPT_ARRAYS_H_
