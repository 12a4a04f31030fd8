#include "kernels/cuda/nccl_exchange.h"

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/device/cuda_status.h"
#include "kernels/device/device_scope.h"
#include "kernels/device/nccl_communicator.h"
#include "kernels/device/nccl_functions.h"
#include "kernels/device/nccl_library.h"

namespace perigee {
namespace {

// Between looks at the stream once it has not emptied at once.
constexpr absl::Duration kLook = absl::Microseconds(20);
constexpr absl::Duration kEagerWait = absl::Microseconds(200);
// For kernels to leave after their communicator was aborted.
constexpr absl::Duration kLeaveLimit = absl::Seconds(10);

// One for the process, never closed: communicators use its functions.
absl::StatusOr<const NcclLibrary*> OpenNccl() {
  static std::mutex mutex;
  static const NcclLibrary* library = nullptr;  // guarded by mutex
  std::lock_guard<std::mutex> lock(mutex);
  if (library == nullptr) {
    absl::StatusOr<std::unique_ptr<NcclLibrary>> opened = NcclLibrary::Open();
    if (!opened.ok()) return opened.status();
    library = opened->release();
  }
  return library;
}

class NcclExchange final : public PeerExchange {
 public:
  NcclExchange(const NcclFunctions& functions, const NcclExchangeOptions& options,
               const Stream& stream)
      : functions_(functions), options_(options), stream_(stream) {}
  ~NcclExchange() override {
    const auto scope = DeviceScope::Enter(stream_.device());
    if (!scope.ok()) LogCudaError(scope.status());
    communicator_.reset();
  }

  absl::Status Transfer(absl::Span<const Outgoing> outgoing, absl::Span<const Incoming> incoming,
                        const KeepWaiting& keep_waiting) override {
    const auto scope = DeviceScope::Enter(stream_.device());
    if (!scope.ok()) return scope.status();
    if (broken_) return absl::UnavailableError("an earlier transfer has ended NCCL's communicator");
    std::vector<NcclSend> sends;
    for (const Outgoing& send : outgoing) sends.push_back({send.to, send.bytes, send.size_bytes});
    std::vector<NcclReceive> receives;
    for (const Incoming& receive : incoming) {
      receives.push_back({receive.from, receive.bytes, receive.size_bytes});
    }
    absl::Status status = Join(keep_waiting);
    if (status.ok()) {
      status = communicator_->SendAndReceive(sends, receives, stream_.get(), keep_waiting);
    }
    if (status.ok()) status = AwaitStream(keep_waiting);
    if (!status.ok()) Break();
    return status;
  }
  bool joined() const override { return joined_; }

 private:
  absl::Status Join(const KeepWaiting& keep_waiting) {
    if (joined_) return absl::OkStatus();
    NcclUniqueId id;
    std::memcpy(id.internal, options_.rendezvous.data(), sizeof(id.internal));
    auto made = NcclCommunicator::CreateBounded(functions_, id, options_.ranks, options_.rank,
                                                keep_waiting);
    if (!made.ok()) return made.status();
    communicator_ = *std::move(made);
    joined_ = true;
    return absl::OkStatus();
  }

  // NCCL's kernels wait for peers on the device, without a bound of their own.
  absl::Status AwaitStream(const KeepWaiting& keep_waiting) const {
    const absl::Time start = absl::Now();
    while (true) {
      const absl::StatusOr<bool> empty = stream_.Query();
      if (!empty.ok()) return empty.status();
      if (*empty) return absl::OkStatus();
      if (absl::Status status = keep_waiting(); !status.ok()) return status;
      if (absl::Now() - start < kEagerWait) continue;
      if (absl::Status status = communicator_->AsyncError(); !status.ok()) return status;
      absl::SleepFor(kLook);
    }
  }

  // Nothing of the transfer is under way any more when this returns.
  void Break() {
    broken_ = true;
    if (communicator_ == nullptr) return;
    communicator_->Abort();
    const absl::Time limit = absl::Now() + kLeaveLimit;
    absl::StatusOr<bool> empty = false;
    while (empty.ok() && !*empty && absl::Now() < limit) {
      absl::SleepFor(kLook);
      empty = stream_.Query();
    }
    if (!empty.ok()) LogCudaError(empty.status());
  }

  const NcclFunctions& functions_;
  const NcclExchangeOptions options_;
  const Stream& stream_;
  std::unique_ptr<NcclCommunicator> communicator_;
  bool joined_ = false;
  bool broken_ = false;
};

}  // namespace

absl::StatusOr<std::string> NewNcclRendezvous() {
  const absl::StatusOr<const NcclLibrary*> library = OpenNccl();
  if (!library.ok()) return library.status();
  const absl::StatusOr<NcclUniqueId> id = NcclCommunicator::NewId((*library)->functions());
  if (!id.ok()) return id.status();
  return std::string(id->internal, sizeof(id->internal));
}

absl::StatusOr<std::unique_ptr<PeerExchange>> CreateNcclExchange(const NcclExchangeOptions& options,
                                                                 const Stream& stream) {
  if (options.rendezvous.size() != sizeof(NcclUniqueId)) {
    return absl::InvalidArgumentError(absl::StrCat("rendezvous has ", options.rendezvous.size(),
                                                   " bytes, expected ", sizeof(NcclUniqueId)));
  }
  const absl::StatusOr<const NcclLibrary*> library = OpenNccl();
  if (!library.ok()) return library.status();
  return std::make_unique<NcclExchange>((*library)->functions(), options, stream);
}

}  // namespace perigee
