// A backend that hands everything on to another: one that differs in a few things overrides those.
#ifndef PERIGEE_TESTS_CONTRACT_FORWARDING_BACKEND_H_
#define PERIGEE_TESTS_CONTRACT_FORWARDING_BACKEND_H_

#include <memory>
#include <string>

#include "kernels/backend.h"

namespace perigee {

class ForwardingBackend : public Backend {
 public:
  // Borrowed; not used before the first call.
  explicit ForwardingBackend(Backend& backend) : backend_(backend) {}

  BackendInfo info() const override { return backend_.info(); }
  absl::StatusOr<std::unique_ptr<Memory>> AllocateShared(size_t size_bytes,
                                                         PeerAccess access) override {
    return backend_.AllocateShared(size_bytes, access);
  }
  absl::StatusOr<std::unique_ptr<Memory>> AllocatePrivate(size_t size_bytes) override {
    return backend_.AllocatePrivate(size_bytes);
  }
  absl::StatusOr<std::unique_ptr<Memory>> Import(int descriptor, size_t size_bytes,
                                                 PeerAccess access) override {
    return backend_.Import(descriptor, size_bytes, access);
  }
  absl::Status CopyIn(std::byte* to, absl::Span<const std::byte> from) override {
    return backend_.CopyIn(to, from);
  }
  absl::Status CopyOut(absl::Span<std::byte> to, const std::byte* from) override {
    return backend_.CopyOut(to, from);
  }
  absl::StatusOr<std::unique_ptr<DataPath>> CreateDataPath(
      const DataPathOptions& options) override {
    return backend_.CreateDataPath(options);
  }
  absl::StatusOr<std::string> NewRendezvous() override { return backend_.NewRendezvous(); }

 protected:
  Backend& backend() { return backend_; }

 private:
  Backend& backend_;
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_FORWARDING_BACKEND_H_
