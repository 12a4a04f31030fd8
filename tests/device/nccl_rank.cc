#include "tests/device/nccl_rank.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/device/copy.h"
#include "kernels/device/device_scope.h"
#include "kernels/device/event.h"
#include "tests/device/random_bytes.h"

namespace perigee {
namespace {

constexpr uint8_t kPoison = 0xA5;

uint64_t SeedOf(const Traffic& traffic, int from, int to) {
  return static_cast<uint64_t>(from * traffic.ranks() + to + 1);
}

// The parts one behind the other.
std::vector<ByteRange> Ranges(const std::vector<size_t>& sizes) {
  std::vector<ByteRange> ranges;
  size_t offset = 0;
  for (const size_t size : sizes) {
    ranges.push_back({offset, size});
    offset += size;
  }
  return ranges;
}

absl::StatusOr<std::unique_ptr<PrivateDeviceMemory>> MemoryFor(
    int device, const std::vector<ByteRange>& ranges) {
  const size_t size_bytes = ranges.back().offset + ranges.back().size_bytes;
  return PrivateDeviceMemory::Allocate(device, size_bytes == 0 ? 16 : size_bytes);
}

}  // namespace

NcclRank::~NcclRank() { (void)Leave(); }

absl::Status NcclRank::Join(const NcclLibrary& nccl, const NcclUniqueId& id, int ranks) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(rank_);
  if (!scope.ok()) return scope.status();
  auto stream = Stream::Create(rank_);
  if (!stream.ok()) return stream.status();
  stream_ = *std::move(stream);
  auto communicator = NcclCommunicator::Create(nccl.functions(), id, ranks, rank_);
  if (!communicator.ok()) return communicator.status();
  communicator_ = *std::move(communicator);
  return absl::OkStatus();
}

absl::Status NcclRank::Leave() {
  if (communicator_ == nullptr) return absl::OkStatus();
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(rank_);
  if (!scope.ok()) return scope.status();
  communicator_.reset();
  return absl::OkStatus();
}

absl::Status NcclRank::Prepare(const Traffic& traffic) {
  std::vector<size_t> to_peers;
  std::vector<size_t> from_peers;
  for (int peer = 0; peer < traffic.ranks(); ++peer) {
    to_peers.push_back(traffic.BytesOf(rank_, peer));
    from_peers.push_back(traffic.BytesOf(peer, rank_));
  }
  sent_ = Ranges(to_peers);
  received_ = Ranges(from_peers);
  auto send = MemoryFor(rank_, sent_);
  if (!send.ok()) return send.status();
  send_ = *std::move(send);
  auto receive = MemoryFor(rank_, received_);
  if (!receive.ok()) return receive.status();
  receive_ = *std::move(receive);
  absl::Status status = FillDevice(rank_, receive_->data(), kPoison, receive_->size_bytes());
  for (int peer = 0; peer < traffic.ranks() && status.ok(); ++peer) {
    status = FillRandom(*stream_, send_->data() + sent_[peer].offset, sent_[peer].size_bytes,
                        SeedOf(traffic, rank_, peer));
  }
  return status;
}

absl::StatusOr<std::vector<absl::Duration>> NcclRank::Exchange(int count) {
  const absl::StatusOr<DeviceScope> scope = DeviceScope::Enter(rank_);
  if (!scope.ok()) return scope.status();
  std::vector<std::unique_ptr<Event>> marks;
  for (int i = 0; i <= count; ++i) {
    auto mark = Event::Create(rank_, EventTiming::kOn);
    if (!mark.ok()) return mark.status();
    marks.push_back(*std::move(mark));
  }
  absl::Status status = marks[0]->Record(stream_->get());
  for (int i = 0; i < count && status.ok(); ++i) {
    status =
        communicator_->Exchange(send_->data(), sent_, receive_->data(), received_, stream_->get());
    if (status.ok()) status = marks[i + 1]->Record(stream_->get());
  }
  if (status.ok()) status = stream_->Synchronize();
  if (!status.ok()) return status;
  std::vector<absl::Duration> times;
  for (int i = 0; i < count; ++i) {
    const absl::StatusOr<absl::Duration> time = Elapsed(*marks[i], *marks[i + 1]);
    if (!time.ok()) return time.status();
    times.push_back(*time);
  }
  return times;
}

absl::Status NcclRank::Check(const Traffic& traffic) const {
  for (int peer = 0; peer < traffic.ranks(); ++peer) {
    const absl::Status status =
        CheckRandom(*stream_, receive_->data() + received_[peer].offset, received_[peer].size_bytes,
                    SeedOf(traffic, peer, rank_));
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat("from rank ", peer, " to rank ", rank_, ": ",
                                                    std::string(status.message())));
  }
  return absl::OkStatus();
}

}  // namespace perigee
