// Random inputs of `perigee bench`, the same for the same seed.
#ifndef PERIGEE_CLIENT_CLI_BENCH_BENCH_DATA_H_
#define PERIGEE_CLIENT_CLI_BENCH_BENCH_DATA_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/common/bfloat16.h"
#include "kernels/layout/geometry.h"

namespace perigee {

// A seed for one of many tensors of a run.
uint64_t DeriveSeed(uint64_t seed, uint64_t tensor, uint64_t rank);

// Values that are normally distributed, times `scale`. A shorter sequence of the same seed is a
// prefix of a longer one.
std::vector<BFloat16> RandomBFloat16(uint64_t seed, size_t count, float scale);

// [count] uniform in [0, 1).
std::vector<float> RandomWeights(uint64_t seed, size_t count);

// [R, S, K]: K distinct experts for every token, all equally likely. K <= E.
std::vector<int32_t> RandomRoutes(uint64_t seed, const Geometry& geometry);

// The same where experts are not equally likely: expert e has weight exp(sigma * x), x of a
// standard normal distribution, drawn once for all ranks; a token's experts are drawn one after the
// other, each by the weights of those that it does not have yet. sigma in [0, kMostSkew]; 0: all
// equally likely.
inline constexpr double kMostSkew = 20;
std::vector<int32_t> SkewedRoutes(uint64_t seed, const Geometry& geometry, double sigma);

// [R, S, 1], R > 1: every token of a rank goes to another one, to these in turn, and there to an
// expert at random. Ranks have S rows each, so none is computed but at its expert's home.
std::vector<int32_t> RemoteRoutes(uint64_t seed, const Geometry& geometry);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_BENCH_BENCH_DATA_H_
