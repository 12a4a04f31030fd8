// run_experts on the host backend. Contract: kernels/backend.h.
#ifndef PERIGEE_KERNELS_HOST_RUN_EXPERTS_H_
#define PERIGEE_KERNELS_HOST_RUN_EXPERTS_H_

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/host/host_rank.h"

namespace perigee {

// Rounding: x @ gate and x @ up in fp32; h = silu(.) * (.) in fp32, rounded to bf16; h @ down in
// fp32, times the row's weight in fp32, rounded once. The order of the sums stands in
// matrix_product.h. Padding rows come out zero, rows past the last group are left alone.
//
// FAILED_PRECONDITION, before anything is written, for a slot or a home block that holds other
// weights; kStaleWeights for a home block that was loaded anew meanwhile.
absl::Status HostRunExperts(HostRank& rank, const PlanPtr& plan, const ExpertWeights& weights,
                            const RunExpertsInput& input);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_RUN_EXPERTS_H_
