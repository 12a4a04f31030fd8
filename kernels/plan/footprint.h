// The memory that one rank of a group takes, buffer by buffer, before anything is allocated.
#ifndef PERIGEE_KERNELS_PLAN_FOOTPRINT_H_
#define PERIGEE_KERNELS_PLAN_FOOTPRINT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/weights_layout.h"

namespace perigee {

struct FootprintShape {
  Geometry geometry;
  int32_t hidden = 0;        // H
  int32_t intermediate = 0;  // H', 0: no expert weights
  int32_t layers = 1;        // whose weights are held; the slots are shared by all
  bool gradients = false;    // whether those of the weights are held, too
  WeightFormat weight_format = WeightFormat::kBFloat16;
  bool weight_scales = false;         // block scales come with the weights; never with bf16
  int32_t dispatch_output_slots = 0;  // docs/rings.md
  int32_t expert_output_slots = 0;
  bool source = false;  // whether there is a source shard
};

struct BufferBytes {
  std::string name;  // as in docs/cli.md
  int64_t bytes = 0;
  bool in_shard = false;  // part of the shard, which a new generation gets anew
};

struct Footprint {
  std::vector<BufferBytes> buffers;  // of one rank

  int64_t shard_bytes() const;
  int64_t rank_bytes() const;  // all buffers
  // While a new generation forms: the shard of the old one is kept until its mappings are proven
  // dead, so there are two.
  int64_t forming_bytes() const { return rank_bytes() + shard_bytes(); }
};

// INVALID_ARGUMENT: ValidateGeometry; H not a multiple of 8 from 8 to 65536, H' not one from 0;
// layers outside [1, 1024]; output slots outside [0, 64]; gradients or scales of no weights,
// gradients with fewer slots than E / R, scales with bf16. Within these limits no sum leaves 63
// bits.
absl::StatusOr<Footprint> EstimateFootprint(const FootprintShape& shape);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_PLAN_FOOTPRINT_H_
