// One rank of an NCCL communicator.
#ifndef PERIGEE_KERNELS_DEVICE_NCCL_COMMUNICATOR_H_
#define PERIGEE_KERNELS_DEVICE_NCCL_COMMUNICATOR_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device/nccl_functions.h"

namespace perigee {

// INTERNAL with NCCL's words, unless the result is ncclSuccess.
absl::Status NcclStatus(const NcclFunctions& functions, int result, absl::string_view doing);

// A stretch of a buffer.
struct ByteRange {
  size_t offset = 0;
  size_t size_bytes = 0;
};

// Asked again and again while a call waits; any status but OK ends the wait, which returns it.
using NcclKeepWaiting = std::function<absl::Status()>;

// Bytes to or from a rank.
struct NcclSend {
  int to = 0;
  const std::byte* bytes = nullptr;
  size_t size_bytes = 0;
};
struct NcclReceive {
  int from = 0;
  std::byte* bytes = nullptr;
  size_t size_bytes = 0;
};

// Not thread-safe. To be made, used and destroyed with the rank's device current; collective calls
// are queued on a stream of it. Errors are INTERNAL with NCCL's words.
class NcclCommunicator {
 public:
  // What all ranks of a new communicator have to know.
  static absl::StatusOr<NcclUniqueId> NewId(const NcclFunctions& functions);
  // Collective: waits for all ranks, without a bound. The functions outlive the result.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Create(const NcclFunctions& functions,
                                                                  const NcclUniqueId& id, int ranks,
                                                                  int rank);
  // The same for a communicator whose calls do not wait by themselves: it waits as long as it is
  // told to. NCCL does not say who is missing.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> CreateBounded(
      const NcclFunctions& functions, const NcclUniqueId& id, int ranks, int rank,
      const NcclKeepWaiting& keep_waiting);
  // Waits for nobody where it was made by CreateBounded.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  absl::Status SumFloats(const std::byte* send, std::byte* receive, size_t count,
                         CUstream_st* stream) const;
  // Sends the range sent[p] of `send` to rank p and receives received[p] of `receive` from it, this
  // rank included; [R] each, empty ones are left out.
  absl::Status Exchange(const std::byte* send, const std::vector<ByteRange>& sent,
                        std::byte* receive, const std::vector<ByteRange>& received,
                        CUstream_st* stream) const;

  // Queues all of them as one operation, and waits, as it is told to, until they are queued.
  absl::Status SendAndReceive(const std::vector<NcclSend>& sends,
                              const std::vector<NcclReceive>& receives, CUstream_st* stream,
                              const NcclKeepWaiting& keep_waiting) const;
  // What has gone wrong since, on this rank or, where NCCL has heard of it, on another.
  absl::Status AsyncError() const;
  // Ends what is queued, also where it waits for a rank that does not come. Nothing may follow.
  void Abort();

 private:
  NcclCommunicator(const NcclFunctions& functions, ncclComm* comm, bool bounded)
      : functions_(functions), comm_(comm), bounded_(bounded) {}

  absl::Status Await(int result, absl::string_view doing,
                     const NcclKeepWaiting& keep_waiting) const;

  const NcclFunctions& functions_;
  ncclComm* comm_;  // null when it has been aborted
  const bool bounded_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_NCCL_COMMUNICATOR_H_
