// What a rank says about a failure, in the words of the wire.
#ifndef PERIGEE_WORKER_OPS_ERROR_REPORT_H_
#define PERIGEE_WORKER_OPS_ERROR_REPORT_H_

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "kernels/layout/operation.h"
#include "proto/v1/error.pb.h"
#include "worker/ops/group_view.h"

namespace perigee {

// A failure on this rank. The record is there when an operation had been entered; it then decides
// the reason, else the status does (failure_reason.h).
struct Failure {
  absl::Status status;
  absl::optional<ErrorRecord> record;
};

// The message says what this rank was doing and why it ended, and names the rank that was waited
// for with its worker. It does not name this rank: `rank` and `worker` of the report do, and
// whoever shows the message puts them before it.
v1::RankStatus ToRankStatus(const GroupView& group, const Failure& failure);
// The reason of its report: "DEADLINE", "DECLINED", ...
std::string ReasonOf(const ErrorRecord& record);
// "dispatch", "combine", ... as the wire has it; "operation 77" for what is none.
std::string WireOperationName(uint32_t operation);

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_ERROR_REPORT_H_
