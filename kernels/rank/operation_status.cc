#include "kernels/rank/operation_status.h"

#include "absl/strings/str_cat.h"
#include "kernels/rank/agreement.h"

namespace perigee {
namespace {

absl::StatusCode CodeOf(AbortReason reason) {
  switch (reason) {
    case AbortReason::kNone:
      return absl::StatusCode::kOk;
    case AbortReason::kBadRoute:
    case AbortReason::kDisagreement:
      return absl::StatusCode::kInvalidArgument;
    case AbortReason::kCancelled:
      return absl::StatusCode::kCancelled;
    case AbortReason::kAborted:
      return absl::StatusCode::kUnavailable;
    case AbortReason::kDeadline:
      return absl::StatusCode::kDeadlineExceeded;
    case AbortReason::kOutOfStep:
    case AbortReason::kStaleWeights:
    case AbortReason::kDeclined:
      return absl::StatusCode::kFailedPrecondition;
  }
  return absl::StatusCode::kInternal;
}

}  // namespace

absl::Status OperationStatus(const ErrorRecord& record, const std::string& text) {
  return absl::Status(CodeOf(static_cast<AbortReason>(record.reason)),
                      absl::StrCat("rank ", record.rank, ", ", OperationName(record.operation),
                                   ", sequence ", record.sequence, ": ", text));
}

}  // namespace perigee
