// A fixed number of threads that share the iterations of a loop. Idle threads sleep.
#ifndef PERIGEE_KERNELS_HOST_THREAD_POOL_H_
#define PERIGEE_KERNELS_HOST_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace perigee {

class ThreadPool {
 public:
  // The calling thread works too, so threads - 1 are started; threads >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls body(begin, end) for ranges that cover [0, count), each of at most `grain` iterations, in
  // any order on any thread; returns when all have ended. From one thread at a time. What body
  // wrote is visible to the caller afterwards.
  void ParallelFor(int64_t count, int64_t grain,
                   const std::function<void(int64_t begin, int64_t end)>& body);

 private:
  struct Loop {
    int64_t count = 0;
    int64_t grain = 1;
    const std::function<void(int64_t, int64_t)>* body = nullptr;
  };

  void Work();
  void Share(const Loop& loop);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  Loop loop_;              // guarded by mutex_
  uint64_t round_ = 0;     // guarded by mutex_; changes when there is a new loop
  int working_ = 0;        // guarded by mutex_; threads that have not ended the present loop
  bool stopping_ = false;  // guarded by mutex_
  std::atomic<int64_t> next_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_THREAD_POOL_H_
