// Reads recorded routes for `perigee plan`.
#ifndef PERIGEE_CLIENT_CLI_PLAN_INPUT_H_
#define PERIGEE_CLIENT_CLI_PLAN_INPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"

namespace perigee {

// Which routes of the file to take.
struct RouteSelection {
  absl::optional<int32_t> layer;   // given: the tensor is [layers, tokens, K], else [R, S, K]
  absl::optional<int32_t> ranks;   // with a layer: its tokens are shared out to so many ranks
  absl::optional<int32_t> tokens;  // at most so many of each rank's tokens, the first ones
};

struct RecordedRoutes {
  int32_t ranks = 0;                  // R
  int32_t tokens = 0;                 // S
  int32_t topk = 0;                   // K
  std::vector<int64_t> topk_experts;  // [R, S, K], not yet checked
  std::vector<int32_t> token_counts;  // [R]
};

// Takes topk_experts of any integer dtype and, if it is there, token_counts [R].
// FAILED_PRECONDITION: the selection does not fit the file (wrong use). Else what is wrong with the
// file: TensorFile::Open, NOT_FOUND for a missing tensor, INVALID_ARGUMENT for a dtype or shape.
absl::StatusOr<RecordedRoutes> ReadRoutes(const std::string& path, const RouteSelection& selection);

// As the planner takes them. INVALID_ARGUMENT: BadRouteError (kernels/plan/histogram.h).
absl::StatusOr<std::vector<int32_t>> NarrowRoutes(const RecordedRoutes& routes, int32_t experts);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_PLAN_INPUT_H_
