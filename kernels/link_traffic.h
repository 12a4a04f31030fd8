// What a data path has sent to other ranks: a side of those that send messages. Ranks that store
// into each other's memory do not count what they store.
#ifndef PERIGEE_KERNELS_LINK_TRAFFIC_H_
#define PERIGEE_KERNELS_LINK_TRAFFIC_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace perigee {

class DataPath;  // kernels/backend.h

// Of one rank of one buffer; it may outlive the data path. Thread-safe.
class LinkTraffic {
 public:
  explicit LinkTraffic(int32_t ranks) : bytes_sent_(static_cast<size_t>(ranks)) {}

  void Sent(int32_t to, uint64_t bytes) {
    bytes_sent_[static_cast<size_t>(to)].fetch_add(bytes, std::memory_order_relaxed);
  }
  // [R] to each rank; 0 to the rank itself.
  std::vector<uint64_t> bytes_sent() const {
    std::vector<uint64_t> bytes;
    for (const std::atomic<uint64_t>& sent : bytes_sent_) {
      bytes.push_back(sent.load(std::memory_order_relaxed));
    }
    return bytes;
  }

 private:
  std::vector<std::atomic<uint64_t>> bytes_sent_;
};

// A data path that counts is one of these, too.
class CountsTraffic {
 public:
  virtual ~CountsTraffic() = default;
  virtual std::shared_ptr<const LinkTraffic> traffic() const = 0;
};

// Null where the data path counts nothing.
std::shared_ptr<const LinkTraffic> TrafficOf(const DataPath& path);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_LINK_TRAFFIC_H_
