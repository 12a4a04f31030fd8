#include "kernels/device/nccl_communicator.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace perigee {
namespace {

// Between looks at a call that goes on in NCCL's own threads.
constexpr absl::Duration kLook = absl::Microseconds(20);

}  // namespace

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
  return std::unique_ptr<NcclCommunicator>(new NcclCommunicator(functions, comm, false));
}

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::CreateBounded(
    const NcclFunctions& functions, const NcclUniqueId& id, int ranks, int rank,
    const NcclKeepWaiting& keep_waiting) {
  NcclConfig config;
  ncclComm* comm = nullptr;
  const int result = functions.comm_init_rank_config(&comm, ranks, id, rank, &config);
  if (comm == nullptr) return NcclStatus(functions, result, "ncclCommInitRankConfig");
  std::unique_ptr<NcclCommunicator> made(new NcclCommunicator(functions, comm, true));
  absl::Status status = made->Await(result, "ncclCommInitRankConfig", keep_waiting);
  if (!status.ok()) return status;
  return made;
}

NcclCommunicator::~NcclCommunicator() {
  if (bounded_) {
    Abort();
  } else {
    functions_.comm_destroy(comm_);
  }
}

void NcclCommunicator::Abort() {
  if (comm_ != nullptr) functions_.comm_abort(comm_);
  comm_ = nullptr;
}

absl::Status NcclCommunicator::Await(int result, absl::string_view doing,
                                     const NcclKeepWaiting& keep_waiting) const {
  while (result == kNcclInProgress) {
    if (absl::Status status = keep_waiting(); !status.ok()) return status;
    absl::SleepFor(kLook);
    const int asked = functions_.comm_get_async_error(comm_, &result);
    if (asked != kNcclSuccess) result = asked;
  }
  return NcclStatus(functions_, result, doing);
}

absl::Status NcclCommunicator::AsyncError() const {
  int result = kNcclSuccess;
  const int asked = functions_.comm_get_async_error(comm_, &result);
  if (asked != kNcclSuccess) result = asked;
  return result == kNcclInProgress ? absl::OkStatus() : NcclStatus(functions_, result, "NCCL");
}

absl::Status NcclCommunicator::SendAndReceive(const std::vector<NcclSend>& sends,
                                              const std::vector<NcclReceive>& receives,
                                              CUstream_st* stream,
                                              const NcclKeepWaiting& keep_waiting) const {
  const auto goes_on = [](int result) {
    return result == kNcclSuccess || result == kNcclInProgress;
  };
  int result = functions_.group_start();
  for (size_t i = 0; i < sends.size() && goes_on(result); ++i) {
    const NcclSend& send = sends[i];
    result = functions_.send(send.bytes, send.size_bytes, kNcclUint8, send.to, comm_, stream);
  }
  for (size_t i = 0; i < receives.size() && goes_on(result); ++i) {
    const NcclReceive& receive = receives[i];
    result = functions_.receive(receive.bytes, receive.size_bytes, kNcclUint8, receive.from, comm_,
                                stream);
  }
  const int ended = functions_.group_end();
  return Await(goes_on(result) ? ended : result, "ncclSend and ncclRecv", keep_waiting);
}

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
