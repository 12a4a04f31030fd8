// Random planning input for tests.
#ifndef PERIGEE_KERNELS_PLAN_RANDOM_GROUP_H_
#define PERIGEE_KERNELS_PLAN_RANDOM_GROUP_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/layout/geometry.h"

namespace perigee {

struct GroupInput {
  Geometry geometry;
  std::vector<int32_t> topk_experts;  // [R, S, K]; of tokens past a rank's count: arbitrary
  std::vector<int32_t> token_counts;  // [R]

  std::string Describe() const;
};

// PERIGEE_SEED if it is set, else a fresh one. Prints it either way.
uint64_t TestSeed();

// Small groups of every kind: R from 1 to 16 (sometimes to 128), odd ones too, B none, fewer than,
// as many as or more than E/R, no padding or much, full, masked or uneven token counts, none at
// all; ids uniform, skewed, all on one expert or all on one rank; ids of a token distinct or not.
GroupInput RandomGroup(std::mt19937_64& random);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_RANDOM_GROUP_H_
