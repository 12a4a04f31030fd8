// One thread that runs what it is given, in order: for work that waits for a disk.
#ifndef PERIGEE_SERVER_WORK_QUEUE_H_
#define PERIGEE_SERVER_WORK_QUEUE_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace perigee {

// Thread-safe.
class WorkQueue {
 public:
  WorkQueue();
  ~WorkQueue();  // Stop
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Does not block. Dropped after Stop.
  void Post(std::function<void()> work);
  // Waits for what runs; what waits is dropped. Not to be called from work. Idempotent.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_WORK_QUEUE_H_
