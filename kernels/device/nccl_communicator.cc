#include "kernels/device/nccl_communicator.h"

#include "absl/strings/str_cat.h"

namespace perigee {
absl::Status NcclStatus(const NcclFunctions& functions, int result, absl::string_view doing) {
  if (result == kNcclSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(doing, ": ", functions.get_error_string(result), " (", result, ")"));
}

absl::StatusOr<NcclUniqueId> NcclCommunicator::NewId(const NcclFunctions& functions) {
  NcclUniqueId id = {};
  absl::Status status = NcclStatus(functions, functions.get_unique_id(&id), "ncclGetUniqueId");
  if (!status.ok()) return status;
  return id;
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Create(
    const NcclFunctions& functions, const NcclUniqueId& id, int ranks, int rank) {
  ncclComm* comm = nullptr;
  absl::Status status =
      NcclStatus(functions, functions.comm_init_rank(&comm, ranks, id, rank), "ncclCommInitRank");
  if (!status.ok()) return status;
  return std::unique_ptr<NcclCommunicator>(new NcclCommunicator(functions, comm));
}

NcclCommunicator::~NcclCommunicator() { functions_.comm_destroy(comm_); }

absl::Status NcclCommunicator::SumFloats(const std::byte* send, std::byte* receive, size_t count,
                                         CUstream_st* stream) const {
  return NcclStatus(
      functions_,
      functions_.all_reduce(send, receive, count, kNcclFloat32, kNcclSum, comm_, stream),
      "ncclAllReduce");
}

absl::Status NcclCommunicator::Exchange(const std::byte* send, const std::vector<ByteRange>& sent,
                                        std::byte* receive, const std::vector<ByteRange>& received,
                                        CUstream_st* stream) const {
  int result = functions_.group_start();
  for (size_t peer = 0; peer < sent.size() && result == kNcclSuccess; ++peer) {
    const auto to = static_cast<int>(peer);
    if (sent[peer].size_bytes > 0) {
      result = functions_.send(send + sent[peer].offset, sent[peer].size_bytes, kNcclUint8, to,
                               comm_, stream);
    }
    if (received[peer].size_bytes > 0 && result == kNcclSuccess) {
      result = functions_.receive(receive + received[peer].offset, received[peer].size_bytes,
                                  kNcclUint8, to, comm_, stream);
    }
  }
  const int ended = functions_.group_end();
  return NcclStatus(functions_, result == kNcclSuccess ? ended : result, "ncclSend and ncclRecv");
}

}  // namespace perigee
