// What a rank of a generation has sent to others, and what has failed on it: for whoever watches
// the group (v1::TransportCounts).
#ifndef PERIGEE_WORKER_OPS_TRANSPORT_COUNTERS_H_
#define PERIGEE_WORKER_OPS_TRANSPORT_COUNTERS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kernels/common/ids.h"
#include "kernels/link_traffic.h"
#include "proto/v1/topology.pb.h"

namespace perigee {

// Thread-safe; no call waits for an operation.
class TransportCounters {
 public:
  // transport: as of v1::TransportCounts.
  TransportCounters(std::string group, Generation generation, std::string transport)
      : group_(std::move(group)), generation_(generation), transport_(std::move(transport)) {}

  // What this data path sends counts from now on, also when it is gone. Null: it does not know.
  void Watch(std::shared_ptr<const LinkTraffic> traffic);
  void CountFailure(const std::string& reason);
  v1::TransportCounts Snapshot() const;

 private:
  const std::string group_;
  const Generation generation_;
  const std::string transport_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<std::shared_ptr<const LinkTraffic>> watched_;
  std::vector<uint64_t> ended_;  // [R] of data paths that are gone; empty: of none
  std::map<std::string, uint64_t> failures_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_TRANSPORT_COUNTERS_H_
