#include "client/cli/run/watch.h"

#include <poll.h>
#include <unistd.h>

#include <utility>

#include "client/cli/cluster/cluster_events.h"
#include "client/cli/cluster/interrupt.h"
#include "client/cli/command.h"
#include "kernels/common/check.h"

namespace perigee {

RunWatch::RunWatch(int interrupt_fd, LocalCluster* cluster, std::stop_source stop,
                   std::function<void(const std::string&)> message)
    : interrupt_fd_(interrupt_fd),
      cluster_(cluster),
      stop_(std::move(stop)),
      message_(std::move(message)) {
  auto pipe = NewPipe();
  PERIGEE_CHECK(pipe.ok());
  end_ = *std::move(pipe);
  thread_ = std::thread([this] { Loop(); });
}

RunWatch::~RunWatch() {
  end_.write.Reset();
  thread_.join();
}

void RunWatch::Loop() {
  while (true) {
    const int events = cluster_ == nullptr ? -1 : cluster_->event_fd();
    pollfd fds[] = {{interrupt_fd_, POLLIN, 0}, {events, POLLIN, 0}, {end_.read.get(), POLLIN, 0}};
    poll(fds, 3, -1);
    if (fds[2].revents != 0) return;
    if (fds[0].revents != 0 && TookInterrupt(interrupt_fd_)) OnInterrupt();
    if (fds[1].revents == 0) continue;
    for (const SupervisorEvent& event : cluster_->TakeEvents()) {
      const std::string text = DescribeClusterEvent(event);
      if (!text.empty()) message_(text);
    }
  }
}

void RunWatch::OnInterrupt() {
  // The supervisor cleans up after a command that ends at once, too.
  if (stop_.stop_requested()) _exit(kFailed);
  message_("cancelling; Ctrl-C again ends at once");
  stop_.request_stop();
}

}  // namespace perigee
