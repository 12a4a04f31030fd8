// Where a rank's rows come from, as kernels see it: what a source view says, and in which order it
// is fetched. In the rank's private memory, of the view that lives; only where there is a source.
#ifndef PERIGEE_KERNELS_CUDA_SOURCE_LISTS_H_
#define PERIGEE_KERNELS_CUDA_SOURCE_LISTS_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/layout/source_layout.h"

namespace perigee {

// A token with rows here: [start, start + count) of PlanView::duplicate_rows, the primary's first.
struct alignas(16) SourcePull {
  int32_t rank = 0;
  int32_t token = 0;
  int32_t start = 0;
  int32_t count = 0;
};
static_assert(sizeof(SourcePull) == 16);

struct SourceLists {
  const SourceShardView* shards = nullptr;  // [R] as mapped by this rank
  int32_t* origins = nullptr;               // [NvS] as SourceView has them
  SourcePull* pulls = nullptr;              // [NvS], *pull_count used
  int32_t* pull_count = nullptr;
};

struct StoreSourceArguments {
  const BFloat16* hidden = nullptr;      // [S, H], or null: what is there stays
  const float* route_weights = nullptr;  // [S, K], likewise
  int32_t token_count = 0;
  SourceShardView to;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_CUDA_SOURCE_LISTS_H_
