#include "worker/testing/fake_backend.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"
#include "proto/local/file_descriptor.h"

namespace perigee {
namespace {

class FakeMemory final : public Memory {
 public:
  FakeMemory(std::shared_ptr<BackendLedger> ledger, std::string kind, std::byte* data,
             size_t size_bytes, FileDescriptor descriptor)
      : ledger_(std::move(ledger)),
        kind_(std::move(kind)),
        data_(data),
        size_bytes_(size_bytes),
        descriptor_(std::move(descriptor)) {
    ledger_->Add(kind_, 1);
  }
  ~FakeMemory() override {
    munmap(data_, size_bytes_);
    ledger_->Add(kind_, -1);
  }
  std::byte* data() const override { return data_; }
  size_t size_bytes() const override { return size_bytes_; }
  int descriptor() const override { return descriptor_.get(); }

 private:
  const std::shared_ptr<BackendLedger> ledger_;
  const std::string kind_;
  std::byte* const data_;
  const size_t size_bytes_;
  const FileDescriptor descriptor_;
};

std::byte* Map(int fd, size_t size_bytes, bool writable) {
  void* data =
      mmap(nullptr, size_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  PERIGEE_CHECK(data != MAP_FAILED);
  return static_cast<std::byte*>(data);
}

}  // namespace

void BackendLedger::Add(const std::string& kind, int64_t change) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (change < 0) gone_.push_back(kind);
  for (auto& [name, count] : counts_) {
    if (name == kind) {
      count += change;
      return;
    }
  }
  counts_.emplace_back(kind, change);
}

int64_t BackendLedger::alive(const std::string& kind) const {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [name, count] : counts_) {
    if (name == kind) return count;
  }
  return 0;
}

std::vector<std::string> BackendLedger::gone() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return gone_;
}

FakeBackend::FakeBackend() : ledger_(std::make_shared<BackendLedger>()) {}

BackendInfo FakeBackend::info() const { return {name_, "fake", uint64_t{1} << 40, free_bytes_}; }

absl::StatusOr<std::unique_ptr<Memory>> FakeBackend::AllocateShared(size_t size_bytes,
                                                                    PeerAccess access) {
  if (on_allocate_shared_) on_allocate_shared_();
  FileDescriptor fd(memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  PERIGEE_CHECK(fd.valid() && ftruncate(fd.get(), static_cast<off_t>(size_bytes)) == 0);
  PERIGEE_CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  std::byte* data = Map(fd.get(), size_bytes, true);
  const char* kind = access == PeerAccess::kReadOnly ? "read_only" : "shared";
  return std::make_unique<FakeMemory>(ledger_, kind, data, size_bytes, std::move(fd));
}

absl::StatusOr<std::unique_ptr<Memory>> FakeBackend::AllocatePrivate(size_t size_bytes) {
  PERIGEE_CHECK(size_bytes > 0);
  void* data =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  PERIGEE_CHECK(data != MAP_FAILED);
  return std::make_unique<FakeMemory>(ledger_, "private", static_cast<std::byte*>(data), size_bytes,
                                      FileDescriptor());
}

absl::StatusOr<std::unique_ptr<Memory>> FakeBackend::Import(int descriptor, size_t size_bytes,
                                                            PeerAccess access) {
  FileDescriptor fd(descriptor);
  struct stat found {};
  if (fstat(fd.get(), &found) != 0 || static_cast<size_t>(found.st_size) != size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("imported memory has ", found.st_size, " bytes, expected ", size_bytes));
  }
  std::byte* data = Map(fd.get(), size_bytes, access == PeerAccess::kReadWrite);
  return std::make_unique<FakeMemory>(ledger_, "peer", data, size_bytes, FileDescriptor());
}

absl::Status FakeBackend::CopyIn(std::byte* to, absl::Span<const std::byte> from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
  return absl::OkStatus();
}

absl::Status FakeBackend::CopyOut(absl::Span<std::byte> to, const std::byte* from) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DataPath>> FakeBackend::CreateDataPath(
    const DataPathOptions& options) {
  ledger_->Add("data_path", 1);
  path_options_ = options;
  auto path =
      std::make_unique<FakeDataPath>(options, [ledger = ledger_] { ledger->Add("data_path", -1); });
  if (on_data_path_) on_data_path_(*path);
  return path;
}

}  // namespace perigee
