// A store without a disk.
#ifndef PERIGEE_SERVER_TESTING_MEMORY_STORE_H_
#define PERIGEE_SERVER_TESTING_MEMORY_STORE_H_

#include <atomic>
#include <cstdint>

#include "server/store/store.h"

namespace perigee {

// Thread-safe.
class MemoryStore final : public Store {
 public:
  uint64_t term() const override { return 3; }
  absl::StatusOr<uint64_t> Take(Counter counter) override {
    return counter == Counter::kGeneration ? ++generation_ : ++buffer_;
  }

 private:
  std::atomic<uint64_t> generation_ = 0;
  std::atomic<uint64_t> buffer_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_TESTING_MEMORY_STORE_H_
