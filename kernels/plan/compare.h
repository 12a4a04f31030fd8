// Compares a plan with the reference's, for tests.
#ifndef PERIGEE_KERNELS_PLAN_COMPARE_H_
#define PERIGEE_KERNELS_PLAN_COMPARE_H_

#include "kernels/plan/plan.h"
#include "kernels/plan/reference.h"

namespace perigee {

// Every tensor, exactly; failures name it.
void ExpectSamePlan(const GroupPlan& plan, const ReferencePlan& expected);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_COMPARE_H_
