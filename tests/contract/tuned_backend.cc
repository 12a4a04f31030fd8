#include "tests/contract/tuned_backend.h"

#include <string>
#include <utility>

namespace perigee {
namespace {

class TunedBackend final : public Backend {
 public:
  TunedBackend(std::unique_ptr<Backend> backend, Tuning tuning)
      : backend_(std::move(backend)), tuning_(std::move(tuning)) {}

  BackendInfo info() const override { return backend_->info(); }
  absl::StatusOr<std::unique_ptr<Memory>> AllocateShared(size_t size_bytes,
                                                         PeerAccess access) override {
    return backend_->AllocateShared(size_bytes, access);
  }
  absl::StatusOr<std::unique_ptr<Memory>> AllocatePrivate(size_t size_bytes) override {
    return backend_->AllocatePrivate(size_bytes);
  }
  absl::StatusOr<std::unique_ptr<Memory>> Import(int descriptor, size_t size_bytes,
                                                 PeerAccess access) override {
    return backend_->Import(descriptor, size_bytes, access);
  }
  absl::Status CopyIn(std::byte* to, absl::Span<const std::byte> from) override {
    return backend_->CopyIn(to, from);
  }
  absl::Status CopyOut(absl::Span<std::byte> to, const std::byte* from) override {
    return backend_->CopyOut(to, from);
  }
  absl::StatusOr<std::unique_ptr<DataPath>> CreateDataPath(
      const DataPathOptions& options) override {
    DataPathOptions tuned = options;
    tuning_(tuned);
    return backend_->CreateDataPath(tuned);
  }
  absl::StatusOr<std::string> NewRendezvous() override { return backend_->NewRendezvous(); }

 private:
  const std::unique_ptr<Backend> backend_;
  const Tuning tuning_;
};

}  // namespace

std::unique_ptr<Backend> MakeTunedBackend(std::unique_ptr<Backend> backend, Tuning tuning) {
  return std::make_unique<TunedBackend>(std::move(backend), std::move(tuning));
}

}  // namespace perigee
