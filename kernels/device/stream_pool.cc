#include "kernels/device/stream_pool.h"

#include <map>
#include <mutex>
#include <vector>

namespace perigee {
namespace {

struct Pool {
  std::mutex mutex;
  std::map<int, std::vector<std::unique_ptr<Stream>>> free;  // by device; guarded by mutex
};

// Never destroyed: at the end of the process the driver may be gone before it.
Pool& GetPool() {
  static Pool* pool = new Pool;
  return *pool;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PooledStream>> PooledStream::Take(int device) {
  Pool& pool = GetPool();
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    std::vector<std::unique_ptr<Stream>>& free = pool.free[device];
    if (!free.empty()) {
      auto taken = std::make_unique<PooledStream>(std::move(free.back()));
      free.pop_back();
      return taken;
    }
  }
  absl::StatusOr<std::unique_ptr<Stream>> stream = Stream::Create(device, StreamPriority::kHigh);
  if (!stream.ok()) return stream.status();
  return std::make_unique<PooledStream>(*std::move(stream));
}

PooledStream::~PooledStream() {
  Pool& pool = GetPool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  pool.free[stream_->device()].push_back(std::move(stream_));
}

}  // namespace perigee
