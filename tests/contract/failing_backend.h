// A backend whose copies fail once, where a test says.
#ifndef PERIGEE_TESTS_CONTRACT_FAILING_BACKEND_H_
#define PERIGEE_TESTS_CONTRACT_FAILING_BACKEND_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/host/host_backend.h"
#include "tests/contract/forwarding_backend.h"

namespace perigee {

// Copies fail once, after so many that do not; below 0: never.
using CopiesLeft = std::atomic<int64_t>;

// Of memory of the host. copies_left outlives it.
class FailingBackend final : public ForwardingBackend {
 public:
  explicit FailingBackend(CopiesLeft* copies_left)
      : FailingBackend(CreateHostBackend(), copies_left) {}

  absl::Status CopyIn(std::byte* to, absl::Span<const std::byte> from) override {
    return Fails() ? Failure() : host_->CopyIn(to, from);
  }
  absl::Status CopyOut(absl::Span<std::byte> to, const std::byte* from) override {
    return Fails() ? Failure() : host_->CopyOut(to, from);
  }

 private:
  FailingBackend(std::unique_ptr<Backend> host, CopiesLeft* copies_left)
      : ForwardingBackend(*host), host_(std::move(host)), copies_left_(copies_left) {}

  bool Fails() { return copies_left_->fetch_sub(1) == 0; }
  static absl::Status Failure() { return absl::InternalError("the device is not well"); }

  const std::unique_ptr<Backend> host_;
  CopiesLeft* const copies_left_;
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_FAILING_BACKEND_H_
