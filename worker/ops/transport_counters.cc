#include "worker/ops/transport_counters.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace perigee {
namespace {

void Add(const std::vector<uint64_t>& bytes, std::vector<uint64_t>& sums) {
  sums.resize(std::max(sums.size(), bytes.size()));
  for (size_t rank = 0; rank < bytes.size(); ++rank) sums[rank] += bytes[rank];
}

}  // namespace

void TransportCounters::Watch(std::shared_ptr<const LinkTraffic> traffic) {
  if (traffic == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  // Buffers come and go in a generation; what is left of those that went is their sum.
  const auto gone = [&](const std::shared_ptr<const LinkTraffic>& known) {
    if (known.use_count() > 1) return false;
    Add(known->bytes_sent(), ended_);
    return true;
  };
  watched_.erase(std::remove_if(watched_.begin(), watched_.end(), gone), watched_.end());
  watched_.push_back(std::move(traffic));
}

void TransportCounters::CountFailure(const std::string& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++failures_[reason];
}

v1::TransportCounts TransportCounters::Snapshot() const {
  v1::TransportCounts counts;
  counts.set_group(group_);
  counts.set_generation(generation_.value);
  counts.set_transport(transport_);
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint64_t> sent = ended_;
  for (const std::shared_ptr<const LinkTraffic>& traffic : watched_) {
    Add(traffic->bytes_sent(), sent);
  }
  for (const uint64_t bytes : sent) counts.add_bytes_sent(bytes);
  for (const auto& [reason, count] : failures_) {
    v1::FailureCount* failure = counts.add_failures();
    failure->set_reason(reason);
    failure->set_count(count);
  }
  return counts;
}

}  // namespace perigee
