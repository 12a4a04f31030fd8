#include "tests/contract/tuned_backend.h"

#include <utility>

#include "tests/contract/forwarding_backend.h"

namespace perigee {
namespace {

class TunedBackend final : public ForwardingBackend {
 public:
  TunedBackend(std::unique_ptr<Backend> backend, Tuning tuning)
      : ForwardingBackend(*backend), backend_(std::move(backend)), tuning_(std::move(tuning)) {}

  absl::StatusOr<std::unique_ptr<DataPath>> CreateDataPath(
      const DataPathOptions& options) override {
    DataPathOptions tuned = options;
    tuning_(tuned);
    return ForwardingBackend::CreateDataPath(tuned);
  }

 private:
  const std::unique_ptr<Backend> backend_;
  const Tuning tuning_;
};

}  // namespace

std::unique_ptr<Backend> MakeTunedBackend(std::unique_ptr<Backend> backend, Tuning tuning) {
  return std::make_unique<TunedBackend>(std::move(backend), std::move(tuning));
}

}  // namespace perigee
