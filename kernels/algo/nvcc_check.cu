// Shows that nvcc compiles, for the device, every header that a kernel will include. Nothing calls
// these kernels.
#include "kernels/algo/row_sum.h"
#include "kernels/algo/rows.h"
#include "kernels/algo/swiglu.h"
#include "kernels/common/bfloat16.h"
#include "kernels/common/check.h"
#include "kernels/common/ids.h"
#include "kernels/layout/control_page.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/operation.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/layout/weights_layout.h"

namespace perigee {

__global__ void CheckRows(const BFloat16* const* rows, int32_t count, int32_t hidden,
                          BFloat16* out) {
  SumRows(rows, count, hidden, out);
  CopyRow(RowAt(out, 1, hidden), out, hidden);
  ZeroRows(RowAt(out, 2, hidden), 1, hidden);
  out[0] = SwiGlu(ToFloat(out[0]), ToFloat(out[1]));
}

__global__ void CheckLayout(std::byte* base, Geometry geometry, WeightsShape shape, uint64_t* out) {
  const ShardView shard = ShardLayout::Create(geometry, shape.hidden).View(base);
  out[0] = HashStatement(shard.control->statement[0]);
  out[1] = BarrierPosition(shard.control->peers[0].arrival, Phase::kExit);
  out[2] = WeightsLayout::Home(shape, geometry.experts_per_rank()).size_bytes;
}

}  // namespace perigee
