#include "kernels/staged/staged_rank.h"

namespace perigee {

std::vector<Outgoing> OutgoingByRank(const void* list, const std::vector<int32_t>& counts,
                                     size_t element_bytes) {
  std::vector<Outgoing> transfers;
  const auto* at = static_cast<const std::byte*>(list);
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    transfers.push_back({static_cast<int32_t>(rank), at, counts[rank] * element_bytes});
    at += transfers.back().size_bytes;
  }
  return transfers;
}

std::vector<Incoming> IncomingByRank(void* list, const std::vector<int32_t>& counts,
                                     size_t element_bytes) {
  std::vector<Incoming> transfers;
  auto* at = static_cast<std::byte*>(list);
  for (size_t rank = 0; rank < counts.size(); ++rank) {
    transfers.push_back({static_cast<int32_t>(rank), at, counts[rank] * element_bytes});
    at += transfers.back().size_bytes;
  }
  return transfers;
}

}  // namespace perigee
