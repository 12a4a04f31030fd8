#include "tests/contract/local_exchange.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

// Between looks at whether a rank is to wait any longer.
constexpr std::chrono::milliseconds kLook(1);

// What has been sent and not yet received.
struct Hub {
  std::mutex mutex;
  std::condition_variable sent;
  // By {from, to}; guarded by mutex.
  std::map<std::pair<int32_t, int32_t>, std::deque<std::vector<std::byte>>> boxes;
};

std::shared_ptr<Hub> HubOf(const std::string& rendezvous) {
  static std::mutex mutex;
  static auto* hubs = new std::map<std::string, std::weak_ptr<Hub>>;
  std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<Hub>& known = (*hubs)[rendezvous];
  std::shared_ptr<Hub> hub = known.lock();
  if (hub == nullptr) known = hub = std::make_shared<Hub>();
  return hub;
}

class LocalExchange final : public PeerExchange {
 public:
  LocalExchange(std::shared_ptr<Hub> hub, int32_t rank, LocalCopies copies)
      : hub_(std::move(hub)), rank_(rank), copies_(std::move(copies)) {}

  absl::Status Transfer(absl::Span<const Outgoing> outgoing, absl::Span<const Incoming> incoming,
                        const KeepWaiting& keep_waiting) override {
    absl::Status status = copies_.settle();
    for (size_t i = 0; i < outgoing.size() && status.ok(); ++i) status = Send(outgoing[i]);
    if (!status.ok()) return status;
    std::vector<Incoming> awaited(incoming.begin(), incoming.end());
    std::unique_lock<std::mutex> lock(hub_->mutex);
    while (true) {
      status = TakeWhatHasCome(awaited);
      if (!status.ok() || awaited.empty()) return status;
      if (status = keep_waiting(); !status.ok()) return status;
      hub_->sent.wait_for(lock, kLook);
    }
  }

 private:
  absl::Status Send(const Outgoing& transfer) {
    std::vector<std::byte> bytes(transfer.size_bytes);
    absl::Status status = copies_.read(absl::MakeSpan(bytes), transfer.bytes);
    if (!status.ok()) return status;
    std::lock_guard<std::mutex> lock(hub_->mutex);
    hub_->boxes[{rank_, transfer.to}].push_back(std::move(bytes));
    hub_->sent.notify_all();
    return absl::OkStatus();
  }
  // Those of one rank in their order.
  absl::Status TakeWhatHasCome(std::vector<Incoming>& awaited) {
    std::vector<Incoming> still;
    for (const Incoming& transfer : awaited) {
      auto& box = hub_->boxes[{transfer.from, rank_}];
      if (box.empty()) {
        still.push_back(transfer);
        continue;
      }
      const std::vector<std::byte> bytes = std::move(box.front());
      box.pop_front();
      if (bytes.size() != transfer.size_bytes) {
        return absl::InternalError(absl::StrCat("rank ", transfer.from, " sent ", bytes.size(),
                                                " bytes, rank ", rank_, " expects ",
                                                transfer.size_bytes));
      }
      if (absl::Status status = copies_.write(transfer.bytes, bytes); !status.ok()) return status;
    }
    awaited = std::move(still);
    return absl::OkStatus();
  }

  const std::shared_ptr<Hub> hub_;
  const int32_t rank_;
  const LocalCopies copies_;
};

}  // namespace

std::string NewLocalRendezvous() {
  static std::atomic<int> count = 0;
  return absl::StrCat("local ", ++count);
}

std::unique_ptr<PeerExchange> MakeLocalExchange(const std::string& rendezvous, int32_t rank,
                                                LocalCopies copies) {
  return std::make_unique<LocalExchange>(HubOf(rendezvous), rank, std::move(copies));
}

}  // namespace perigee
