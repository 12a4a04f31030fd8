// What a plan did to one rank, in numbers for people.
#ifndef PERIGEE_WORKER_OPS_PLAN_SUMMARY_H_
#define PERIGEE_WORKER_OPS_PLAN_SUMMARY_H_

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/common/ids.h"
#include "kernels/layout/geometry.h"
#include "proto/v1/program.pb.h"

namespace perigee {

// `token_count`: of this rank's tokens, how many took part.
v1::PlanSummary SummarisePlan(const PlanTensors& plan, const Geometry& geometry, RankId rank,
                              int32_t token_count);

}  // namespace perigee

#endif  // PERIGEE_WORKER_OPS_PLAN_SUMMARY_H_
