#include "worker/session/serial_thread.h"

#include <utility>

namespace perigee {

SerialThread::SerialThread() : thread_([this] { Run(); }) {}

SerialThread::~SerialThread() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SerialThread::Post(std::function<void()> work) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void SerialThread::Drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty(); });
}

void SerialThread::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    {
      const std::function<void()> work = std::move(queue_.front());
      lock.unlock();
      work();
    }
    lock.lock();
    queue_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace perigee
