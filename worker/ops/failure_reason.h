// The stable word for programs that a failure carries beside its code and message
// (proto/v1/error.proto lists them). It travels inside the absl::Status, so every layer may return
// plain statuses and the last one still knows the word.
#ifndef PERIGEE_WORKER_OPS_FAILURE_REASON_H_
#define PERIGEE_WORKER_OPS_FAILURE_REASON_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace perigee {

inline constexpr char kReasonRankLost[] = "RANK_LOST";
inline constexpr char kReasonGenerationAborted[] = "GENERATION_ABORTED";
inline constexpr char kReasonBadRoute[] = "BAD_ROUTE";
inline constexpr char kReasonDisagreement[] = "DISAGREEMENT";
inline constexpr char kReasonCancelled[] = "CANCELLED";
inline constexpr char kReasonDeadline[] = "DEADLINE";
inline constexpr char kReasonOutOfStep[] = "OUT_OF_STEP";
inline constexpr char kReasonStaleWeights[] = "STALE_WEIGHTS";
inline constexpr char kReasonDeclined[] = "DECLINED";
inline constexpr char kReasonStaleObject[] = "STALE_OBJECT";
inline constexpr char kReasonInvalidProgram[] = "INVALID_PROGRAM";
inline constexpr char kReasonClientLost[] = "CLIENT_LOST";
inline constexpr char kReasonPublicationPending[] = "PUBLICATION_PENDING";
inline constexpr char kReasonSlotsInUse[] = "SLOTS_IN_USE";
inline constexpr char kReasonInternal[] = "INTERNAL";

// `status` is not OK.
absl::Status WithReason(absl::Status status, absl::string_view reason);
// Empty for OK; INTERNAL where none was given.
std::string ReasonOf(const absl::Status& status);

// FAILED_PRECONDITION with STALE_OBJECT: what is used has died or never was.
absl::Status StaleObject(absl::string_view message);
// INVALID_ARGUMENT with INVALID_PROGRAM.
absl::Status InvalidProgram(absl::string_view message);

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_FAILURE_REASON_H_
