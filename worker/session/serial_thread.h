// A thread that runs what is posted to it, one after the other.
#ifndef PERIGEE_WORKER_SESSION_SERIAL_THREAD_H_
#define PERIGEE_WORKER_SESSION_SERIAL_THREAD_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace perigee {

class SerialThread {
 public:
  SerialThread();
  ~SerialThread();  // after everything posted has run
  SerialThread(const SerialThread&) = delete;
  SerialThread& operator=(const SerialThread&) = delete;

  // From any thread. Never blocks.
  void Post(std::function<void()> work);
  // Blocks until nothing posted is left; not from the thread itself.
  void Drain();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_; its front is running
  bool stopping_ = false;                    // guarded by mutex_
  std::thread thread_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_SERIAL_THREAD_H_
