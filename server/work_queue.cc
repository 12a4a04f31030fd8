#include "server/work_queue.h"

#include <utility>

namespace perigee {

WorkQueue::WorkQueue() : thread_([this] { Run(); }) {}

WorkQueue::~WorkQueue() { Stop(); }

void WorkQueue::Post(std::function<void()> work) {
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  waiting_.push_back(std::move(work));
  changed_.notify_one();
}

void WorkQueue::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    waiting_.clear();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void WorkQueue::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    if (stopped_) return;
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace perigee
