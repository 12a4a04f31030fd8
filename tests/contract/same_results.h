// Whether another way to dispatch has done what a dispatch does, bit for bit.
#ifndef PERIGEE_TESTS_CONTRACT_SAME_RESULTS_H_
#define PERIGEE_TESTS_CONTRACT_SAME_RESULTS_H_

#include <cstdint>
#include <random>
#include <vector>

#include "kernels/plan/random_group.h"
#include "tests/contract/rank_group.h"

namespace perigee {

// Plans, rows and row weights of all ranks: all of the shard, the poison between the rows included.
void ExpectSameResults(const std::vector<DispatchResult>& results,
                       const std::vector<DispatchResult>& wanted);

// And what is done by the two ranks' plans afterwards: a dispatch by them, and a combine.
void ExpectSameAfterwards(RankGroup& group, const GroupInput& input, uint32_t salt, Copy copy,
                          std::mt19937_64& random, const std::vector<DispatchResult>& results,
                          const std::vector<DispatchResult>& wanted);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_SAME_RESULTS_H_
