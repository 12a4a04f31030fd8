#include "tests/device/rank_memory.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

constexpr size_t kChunkBytes = size_t{8} << 20;
constexpr std::byte kScribble{0xEE};

// No two neighbouring pages alike, and nothing that a cleared page could be.
std::byte Canary(size_t offset) {
  return static_cast<std::byte>((offset * 131 + (offset >> 12) * 7) | 1);
}

std::vector<std::byte> Canaries(size_t offset, size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = Canary(offset + i);
  return bytes;
}

// Calls body(offset, size) for pieces of the memory until one fails.
absl::Status InChunks(const Memory& memory,
                      const std::function<absl::Status(size_t offset, size_t size_bytes)>& body) {
  absl::Status status;
  for (size_t offset = 0; offset < memory.size_bytes() && status.ok(); offset += kChunkBytes) {
    status = body(offset, std::min(kChunkBytes, memory.size_bytes() - offset));
  }
  return status;
}

absl::Status CheckCanaries(Backend& backend, const Memory& memory, size_t part) {
  return InChunks(memory, [&](size_t offset, size_t size_bytes) {
    std::vector<std::byte> bytes(size_bytes);
    absl::Status status = backend.CopyOut(absl::MakeSpan(bytes), memory.data() + offset);
    if (!status.ok()) return status;
    const std::vector<std::byte> expected = Canaries(offset, size_bytes);
    const auto changed = std::mismatch(bytes.begin(), bytes.end(), expected.begin());
    if (changed.first == bytes.end()) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("byte ", offset + static_cast<size_t>(changed.first - bytes.begin()),
                     " of part ", part, " is ", static_cast<int>(*changed.first),
                     ", expected the canary ", static_cast<int>(*changed.second)));
  });
}

}  // namespace

absl::Status RankMemory::Allocate(size_t shard_bytes, size_t extra_bytes) {
  const std::array<size_t, kPartsOfRank> sizes = {shard_bytes, extra_bytes};
  for (size_t part = 0; part < kPartsOfRank; ++part) {
    auto memory = backend_.AllocateShared(sizes[part], PeerAccess::kReadWrite);
    if (!memory.ok()) return memory.status();
    own_[part] = *std::move(memory);
  }
  return absl::OkStatus();
}

std::vector<int> RankMemory::descriptors() const {
  std::vector<int> descriptors;
  for (const auto& part : own_) descriptors.push_back(part->descriptor());
  return descriptors;
}

absl::Status RankMemory::Map(int32_t rank, std::vector<FileDescriptor> descriptors) {
  rank_ = rank;
  peers_.resize(descriptors.size() / kPartsOfRank);
  for (size_t i = 0; i < descriptors.size(); ++i) {
    const size_t peer = i / kPartsOfRank;
    const size_t part = i % kPartsOfRank;
    if (static_cast<int32_t>(peer) == rank) continue;
    auto memory =
        backend_.Import(descriptors[i].Release(), own_[part]->size_bytes(), PeerAccess::kReadWrite);
    if (!memory.ok()) return memory.status();
    peers_[peer][part] = *std::move(memory);
  }
  return absl::OkStatus();
}

std::vector<std::byte*> RankMemory::shards() const {
  std::vector<std::byte*> shards;
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    const bool own = static_cast<int32_t>(peer) == rank_;
    shards.push_back((own ? own_ : peers_[peer])[0]->data());
  }
  return shards;
}

void RankMemory::DropAll() {
  peers_.clear();
  own_ = Parts();
}

absl::Status RankMemory::FillOwn() {
  absl::Status status;
  for (const auto& part : own_) {
    if (!status.ok()) break;
    status = InChunks(*part, [&](size_t offset, size_t size_bytes) {
      return backend_.CopyIn(part->data() + offset, Canaries(offset, size_bytes));
    });
  }
  return status;
}

absl::Status RankMemory::CheckOwn() const {
  for (size_t part = 0; part < kPartsOfRank; ++part) {
    absl::Status status = CheckCanaries(backend_, *own_[part], part);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RankMemory::ScribbleOnPeers() {
  const std::vector<std::byte> bytes(kChunkBytes, kScribble);
  absl::Status status;
  for (const Parts& parts : peers_) {
    for (const auto& part : parts) {
      if (part == nullptr || !status.ok()) continue;
      status = InChunks(*part, [&](size_t offset, size_t size_bytes) {
        return backend_.CopyIn(part->data() + offset,
                               absl::MakeConstSpan(bytes).subspan(0, size_bytes));
      });
    }
  }
  return status;
}

}  // namespace perigee
