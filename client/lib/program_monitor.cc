#include "client/lib/program_monitor.h"

#include <algorithm>

namespace perigee {
namespace {

// Adds what was measured of the same operations.
std::vector<v1::OperationTiming> Sum(
    const std::vector<v1::OperationTiming>& earlier,
    const google::protobuf::RepeatedPtrField<v1::OperationTiming>& now) {
  std::vector<v1::OperationTiming> sum = earlier;
  for (const v1::OperationTiming& timing : now) {
    const auto same = std::find_if(sum.begin(), sum.end(), [&](const v1::OperationTiming& other) {
      return other.operation_index() == timing.operation_index();
    });
    if (same == sum.end()) {
      sum.push_back(timing);
    } else if (timing.count() > 0) {
      const bool first = same->count() == 0;
      same->set_min_ns(first ? timing.min_ns() : std::min(same->min_ns(), timing.min_ns()));
      same->set_max_ns(std::max(same->max_ns(), timing.max_ns()));
      same->set_count(same->count() + timing.count());
      same->set_total_ns(same->total_ns() + timing.total_ns());
      same->mutable_duration_ns()->MergeFrom(timing.duration_ns());
    }
  }
  return sum;
}

}  // namespace

ProgramMonitor::ProgramMonitor(int32_t ranks)
    : now_(ranks), earlier_(ranks), earlier_iterations_ns_(ranks), plans_(ranks) {}

void ProgramMonitor::Update(const v1::ExecuteProgramResponse& message) {
  for (const v1::ProgramProgress& progress : message.progress()) {
    if (progress.rank() < 0 || progress.rank() >= static_cast<int32_t>(now_.size())) continue;
    now_[progress.rank()] = progress;
    if (progress.has_plan()) plans_[progress.rank()] = progress.plan();
  }
}

void ProgramMonitor::StartNext() {
  earlier_iterations_ = iterations_done();
  earlier_ = timings();
  earlier_iterations_ns_ = iterations_ns();
  for (v1::ProgramProgress& progress : now_) progress.Clear();
}

int32_t ProgramMonitor::iterations_done() const {
  int32_t done = INT32_MAX;
  for (const v1::ProgramProgress& progress : now_) {
    done = std::min(done, progress.iterations_done());
  }
  return earlier_iterations_ + (now_.empty() ? 0 : done);
}

std::vector<std::vector<v1::OperationTiming>> ProgramMonitor::timings() const {
  std::vector<std::vector<v1::OperationTiming>> sums;
  for (size_t rank = 0; rank < now_.size(); ++rank) {
    sums.push_back(Sum(earlier_[rank], now_[rank].timings()));
  }
  return sums;
}

std::vector<std::vector<int64_t>> ProgramMonitor::iterations_ns() const {
  std::vector<std::vector<int64_t>> times_ns = earlier_iterations_ns_;
  for (size_t rank = 0; rank < now_.size(); ++rank) {
    const auto& now_ns = now_[rank].iteration_ns();
    times_ns[rank].insert(times_ns[rank].end(), now_ns.begin(), now_ns.end());
  }
  return times_ns;
}

}  // namespace perigee
