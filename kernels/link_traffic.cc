#include "kernels/link_traffic.h"

#include "kernels/backend.h"

namespace perigee {

std::shared_ptr<const LinkTraffic> TrafficOf(const DataPath& path) {
  const auto* counts = dynamic_cast<const CountsTraffic*>(&path);
  return counts == nullptr ? nullptr : counts->traffic();
}

}  // namespace perigee
