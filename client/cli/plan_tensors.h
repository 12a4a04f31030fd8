// The file that `perigee plan` writes.
#ifndef PERIGEE_CLIENT_CLI_PLAN_TENSORS_H_
#define PERIGEE_CLIENT_CLI_PLAN_TENSORS_H_

#include <string>

#include "absl/status/status.h"
#include "kernels/plan/plan.h"

namespace perigee {

// Writes the plan as I32 tensors; docs/cli.md lists them. Errors: WriteTensorFile.
absl::Status WritePlan(const std::string& path, const GroupPlan& plan);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_PLAN_TENSORS_H_
