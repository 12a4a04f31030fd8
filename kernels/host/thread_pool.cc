#include "kernels/host/thread_pool.h"

#include <algorithm>

#include "kernels/common/check.h"

namespace perigee {

ThreadPool::ThreadPool(int threads) {
  PERIGEE_CHECK(threads >= 1);
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::ParallelFor(int64_t count, int64_t grain,
                             const std::function<void(int64_t, int64_t)>& body) {
  PERIGEE_CHECK(grain >= 1);
  if (threads_.empty() || count <= grain) {
    for (int64_t begin = 0; begin < count; begin += grain) {
      body(begin, std::min(count, begin + grain));
    }
    return;
  }
  const Loop loop{count, grain, &body};
  {
    std::lock_guard<std::mutex> lock(mutex_);
    loop_ = loop;
    next_.store(0, std::memory_order_relaxed);
    working_ = static_cast<int>(threads_.size());
    ++round_;
  }
  wake_.notify_all();
  Share(loop);
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [this] { return working_ == 0; });
}

void ThreadPool::Share(const Loop& loop) {
  while (true) {
    const int64_t begin = next_.fetch_add(loop.grain, std::memory_order_relaxed);
    if (begin >= loop.count) return;
    (*loop.body)(begin, std::min(loop.count, begin + loop.grain));
  }
}

void ThreadPool::Work() {
  uint64_t seen = 0;
  while (true) {
    Loop loop;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this, seen] { return stopping_ || round_ != seen; });
      if (stopping_) return;
      seen = round_;
      loop = loop_;
    }
    Share(loop);
    std::lock_guard<std::mutex> lock(mutex_);
    if (--working_ == 0) done_.notify_all();
  }
}

}  // namespace perigee
