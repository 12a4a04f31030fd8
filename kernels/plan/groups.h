// Steps 5, 6 and 10 of planning: the groups of each rank, which of them lie in slots, and their
// rows. Fills in what Place leaves open.
#ifndef PERIGEE_KERNELS_PLAN_GROUPS_H_
#define PERIGEE_KERNELS_PLAN_GROUPS_H_

#include "kernels/plan/placement.h"

namespace perigee {

// Reads alloc; sets experts_to_copy, group_of, remote_stats, cu_seqlens, zero_fill_ranges and
// group_start.
void ArrangeGroups(Placement& placement);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_GROUPS_H_
