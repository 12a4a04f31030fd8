// Input for the contract suite.
#ifndef PERIGEE_TESTS_CONTRACT_TEST_DATA_H_
#define PERIGEE_TESTS_CONTRACT_TEST_DATA_H_

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "kernels/common/bfloat16.h"
#include "kernels/plan/random_group.h"
#include "kernels/plan/reference.h"
#include "tests/contract/rank_group.h"

namespace perigee {

// Rows that carry their token's name in every element, so that a misplaced row, or a part of one,
// shows. Any bits, NaN included: dispatch moves bits.
std::vector<BFloat16> NamedRow(int32_t rank, int32_t token, int32_t hidden, uint32_t salt);
float NamedWeight(int32_t rank, int32_t token, int32_t k, uint32_t salt);

// [R] with named rows and weights; another salt gives other bits.
std::vector<RankInput> NamedInputs(const GroupInput& group, int32_t hidden, uint32_t salt);

// Numbers of a few magnitudes, both signs, zeros of both signs among them; finite.
std::vector<BFloat16> RandomNumbers(std::mt19937_64& random, size_t size);
// Normal numbers of one magnitude, for bounds on the norm of an error: with a few numbers that
// dominate the norm, a single rounding that goes the other way would.
std::vector<BFloat16> NormalNumbers(std::mt19937_64& random, size_t size, double deviation);
std::vector<float> RandomWeights(std::mt19937_64& random, size_t size);
std::vector<double> ValuesOf(const std::vector<BFloat16>& bits);

ReferencePlan PlanByTheRules(const GroupInput& group);

// Runs `count` random groups of at most `max_ranks` ranks, each with its number from 0. Groups that
// are larger are drawn, too, and do not count; the first failure is the end. Fails the test where
// it asks for none: what nothing ran for shows nothing.
void OnRandomGroups(std::mt19937_64& random, int count, int32_t max_ranks,
                    const std::function<void(int i, const GroupInput& input)>& run);

// A geometry with every token valid and random distinct experts.
GroupInput PlainGroup(std::mt19937_64& random, const Geometry& geometry);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CONTRACT_TEST_DATA_H_
