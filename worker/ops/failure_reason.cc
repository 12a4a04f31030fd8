#include "worker/ops/failure_reason.h"

#include "absl/strings/cord.h"
#include "absl/types/optional.h"
#include "kernels/common/check.h"

namespace perigee {
namespace {

constexpr char kPayload[] = "perigee.reason";

}  // namespace

absl::Status WithReason(absl::Status status, absl::string_view reason) {
  PERIGEE_CHECK(!status.ok());
  status.SetPayload(kPayload, absl::Cord(reason));
  return status;
}

std::string ReasonOf(const absl::Status& status) {
  if (status.ok()) return "";
  const absl::optional<absl::Cord> reason = status.GetPayload(kPayload);
  return reason.has_value() ? std::string(*reason) : kReasonInternal;
}

absl::Status StaleObject(absl::string_view message) {
  return WithReason(absl::FailedPreconditionError(message), kReasonStaleObject);
}

absl::Status InvalidProgram(absl::string_view message) {
  return WithReason(absl::InvalidArgumentError(message), kReasonInvalidProgram);
}

}  // namespace perigee
