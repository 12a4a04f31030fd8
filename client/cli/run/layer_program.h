// The program of `perigee run moe-layer`, and the names it uses on workers.
#ifndef PERIGEE_CLIENT_CLI_RUN_LAYER_PROGRAM_H_
#define PERIGEE_CLIENT_CLI_RUN_LAYER_PROGRAM_H_

#include <cstdint>

#include "client/lib/path_selector.h"
#include "proto/v1/program.pb.h"

namespace perigee {

inline constexpr const char* kHiddenTensor = "hidden";
inline constexpr const char* kTopkExpertsTensor = "topk_experts";
inline constexpr const char* kRouteWeightsTensor = "route_weights";
inline constexpr const char* kOutputTensor = "output";

// dispatch or what takes its place, prefetch_weights, run_experts with route weights, combine;
// `iterations` times. Ordered by waits where parts of it may overlap: the prefetch with the rows of
// a dispatch, rows that go straight to their places with all that is not rows.
v1::Program LayerProgram(int32_t layer, uint64_t weights_version, int32_t iterations,
                         DispatchPath path = DispatchPath::kOrdinary);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_LAYER_PROGRAM_H_
