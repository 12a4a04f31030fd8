#include "kernels/device/stream_pool.h"

#include <map>
#include <mutex>
#include <vector>

namespace perigee {
namespace {

struct Pool {
  std::mutex mutex;
  // Guarded by mutex.
  std::map<std::pair<int, StreamPriority>, std::vector<std::unique_ptr<Stream>>> free;
};

// Never destroyed: at the end of the process the driver may be gone before it.
Pool& GetPool() {
  static Pool* pool = new Pool;
  return *pool;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PooledStream>> PooledStream::Take(int device,
                                                                 StreamPriority priority) {
  Pool& pool = GetPool();
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    std::vector<std::unique_ptr<Stream>>& free = pool.free[{device, priority}];
    if (!free.empty()) {
      auto taken = std::make_unique<PooledStream>(std::move(free.back()), priority);
      free.pop_back();
      return taken;
    }
  }
  absl::StatusOr<std::unique_ptr<Stream>> stream = Stream::Create(device, priority);
  if (!stream.ok()) return stream.status();
  return std::make_unique<PooledStream>(*std::move(stream), priority);
}

PooledStream::~PooledStream() {
  Pool& pool = GetPool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  pool.free[{stream_->device(), priority_}].push_back(std::move(stream_));
}

}  // namespace perigee
