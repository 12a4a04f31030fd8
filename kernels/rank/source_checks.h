// Checks of the arguments of an owner-sharded source's operations; the same on every backend, as in
// argument_checks.h.
//
// All checks return INVALID_ARGUMENT, naming what was wrong and what was expected.
#ifndef PERIGEE_KERNELS_RANK_SOURCE_CHECKS_H_
#define PERIGEE_KERNELS_RANK_SOURCE_CHECKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/common/ids.h"
#include "kernels/owner_source.h"
#include "kernels/rank/rank_shape.h"

namespace perigee {

absl::Status CheckPrepareSource(const RankShape& shape, const SourceInput& input);
absl::Status CheckMaterialise(const RankShape& shape, const SourceHandle& source,
                              const DispatchOutput& output);

// Whether the input brings something that does not lie in the source shard already.
bool StoresSource(const RankShape& shape, const SourceInput& input);

// What a view hands out, but for the origins.
SourceView MakeSourceView(const RankShape& shape);
// What the shard holds after the view was materialised.
LiveRows LiveAfterMaterialise(const SourceHandle& source);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_RANK_SOURCE_CHECKS_H_
