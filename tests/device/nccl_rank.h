// One rank of nccl_bench: what it exchanges with the others by NCCL, on a device of its own.
#ifndef PERIGEE_TESTS_DEVICE_NCCL_RANK_H_
#define PERIGEE_TESTS_DEVICE_NCCL_RANK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/device/nccl_communicator.h"
#include "kernels/device/nccl_library.h"
#include "kernels/device/private_device_memory.h"
#include "kernels/device/stream.h"

namespace perigee {

struct Traffic {
  size_t row_bytes = 0;                    // a multiple of 16
  std::vector<std::vector<int64_t>> rows;  // [R from][R to]
  int ranks() const { return static_cast<int>(rows.size()); }
  size_t BytesOf(int from, int to) const { return rows[from][to] * row_bytes; }
};

// All calls of a rank come from one thread, and each rank has its own: Join and Exchange wait for
// the others, without a bound. Rank r has device r.
class NcclRank {
 public:
  explicit NcclRank(int rank) : rank_(rank) {}
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  // Collective. The library outlives this.
  absl::Status Join(const NcclLibrary& nccl, const NcclUniqueId& id, int ranks);
  // Memory for the traffic of this rank, random bytes in what is sent.
  absl::Status Prepare(const Traffic& traffic);
  // Collective: `count` exchanges queued one behind the other; how long each took on the device.
  absl::StatusOr<std::vector<absl::Duration>> Exchange(int count);
  // INTERNAL where what was received is not what was sent.
  absl::Status Check(const Traffic& traffic) const;
  // Collective, and to be called before the end.
  absl::Status Leave();

 private:
  const int rank_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<NcclCommunicator> communicator_;
  std::unique_ptr<PrivateDeviceMemory> send_;
  std::unique_ptr<PrivateDeviceMemory> receive_;
  std::vector<ByteRange> sent_;      // [R] in send_
  std::vector<ByteRange> received_;  // [R] in receive_
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_DEVICE_NCCL_RANK_H_
