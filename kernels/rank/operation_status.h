// The status code of each reason why an operation ends early (the table is in kernels/backend.h).
#ifndef PERIGEE_KERNELS_RANK_OPERATION_STATUS_H_
#define PERIGEE_KERNELS_RANK_OPERATION_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "kernels/layout/operation.h"

namespace perigee {

// The message says which rank stood where, then `text`.
absl::Status OperationStatus(const ErrorRecord& record, const std::string& text);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_OPERATION_STATUS_H_
