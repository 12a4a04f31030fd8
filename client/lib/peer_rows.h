// The rows of other ranks' shards as a client of a buffer with peer_store maps them, to store there
// what it publishes.
#ifndef PERIGEE_CLIENT_LIB_PEER_ROWS_H_
#define PERIGEE_CLIENT_LIB_PEER_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "client/lib/shared_region.h"
#include "kernels/common/bfloat16.h"
#include "kernels/common/ids.h"
#include "proto/local/file_descriptor.h"

namespace perigee {

class PeerRows {
 public:
  PeerRows() = default;  // of a buffer without peer_store
  // others [R - 1] in order of rank, each of size_bytes with the rows at rows_offset. Errors:
  // SharedRegion::Map, naming the rank.
  static absl::StatusOr<PeerRows> Map(std::vector<FileDescriptor> others, RankId own,
                                      size_t size_bytes, uint64_t rows_offset,
                                      const absl::optional<SharedDevice>& device);

  // [R] each rank's [NvS, H], the own at its place; empty of a buffer without peer_store.
  std::vector<BFloat16*> rows(BFloat16* own) const;
  // SharedRegion::MakePrivate.
  absl::Status MakePrivate();

 private:
  bool mapped_ = false;
  RankId own_;
  uint64_t rows_offset_ = 0;
  std::vector<SharedRegion> others_;  // [R - 1]
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_PEER_ROWS_H_
