#include "client/lib/peer_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace perigee {

absl::StatusOr<PeerRows> PeerRows::Map(std::vector<FileDescriptor> others, RankId own,
                                       size_t size_bytes, uint64_t rows_offset,
                                       const absl::optional<SharedDevice>& device) {
  PeerRows peers;
  peers.mapped_ = true;
  peers.own_ = own;
  peers.rows_offset_ = rows_offset;
  for (FileDescriptor& descriptor : others) {
    const size_t place = peers.others_.size();
    const size_t rank = place < static_cast<size_t>(own.value) ? place : place + 1;
    absl::StatusOr<SharedRegion> region =
        SharedRegion::Map(std::move(descriptor), size_bytes, device);
    if (!region.ok()) {
      return absl::Status(region.status().code(),
                          absl::StrCat("the rows of rank ", rank, ": ", region.status().message()));
    }
    peers.others_.push_back(*std::move(region));
  }
  return peers;
}

std::vector<BFloat16*> PeerRows::rows(BFloat16* own) const {
  std::vector<BFloat16*> rows;
  if (!mapped_) return rows;
  for (const SharedRegion& region : others_) {
    rows.push_back(reinterpret_cast<BFloat16*>(region.data() + rows_offset_));
  }
  rows.insert(rows.begin() + own_.value, own);
  return rows;
}

absl::Status PeerRows::MakePrivate() {
  absl::Status status;
  for (SharedRegion& region : others_) status.Update(region.MakePrivate());
  return status;
}

}  // namespace perigee
