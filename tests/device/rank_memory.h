// The memory that one rank's process shares with its peers: its own two parts and its mappings of
// theirs; and patterns in it, which show who has written where.
#ifndef PERIGEE_TESTS_DEVICE_RANK_MEMORY_H_
#define PERIGEE_TESTS_DEVICE_RANK_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "proto/local/file_descriptor.h"
#include "tests/device/rank_wire.h"

namespace perigee {

// Not thread-safe.
class RankMemory {
 public:
  explicit RankMemory(Backend& backend) : backend_(backend) {}

  // The own shard and extra block.
  absl::Status Allocate(size_t shard_bytes, size_t extra_bytes);
  std::vector<int> descriptors() const;  // of the own parts, borrowed
  // descriptors [R][2] of a group in which this process is `rank`, its own ones among them.
  absl::Status Map(int32_t rank, std::vector<FileDescriptor> descriptors);
  std::vector<std::byte*> shards() const;  // [R]
  // Nothing may use the memory any more.
  void Unmap(int32_t rank) { peers_[rank] = Parts(); }
  void DropAll();

  absl::Status FillOwn();
  // INTERNAL, naming the first byte that is not as FillOwn wrote it.
  absl::Status CheckOwn() const;
  // One value over everything that is mapped of the peers.
  absl::Status ScribbleOnPeers();

 private:
  using Parts = std::array<std::unique_ptr<Memory>, kPartsOfRank>;

  Backend& backend_;
  Parts own_;
  std::vector<Parts> peers_;  // [R]; empty where the own ones are
  int32_t rank_ = -1;
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_DEVICE_RANK_MEMORY_H_
