// The tensors of a plan by the names that they have on the wire.
#ifndef PERIGEE_WORKER_SESSION_PLAN_TENSOR_H_
#define PERIGEE_WORKER_SESSION_PLAN_TENSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/layout/geometry.h"

namespace perigee {

struct PlanTensor {
  std::vector<int64_t> shape;
  std::vector<int32_t> values;
};

// INVALID_ARGUMENT, with the names there are.
absl::StatusOr<PlanTensor> SelectPlanTensor(const PlanTensors& plan, const std::string& name,
                                            const Geometry& geometry);

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_PLAN_TENSOR_H_
