#include "kernels/plan/footprint.h"

#include "absl/strings/str_cat.h"
#include "kernels/common/bfloat16.h"
#include "kernels/layout/gradients_layout.h"
#include "kernels/layout/rings.h"
#include "kernels/layout/shard_layout.h"
#include "kernels/layout/source_layout.h"
#include "kernels/layout/weights_layout.h"
#include "kernels/plan/validate.h"

namespace perigee {
namespace {

constexpr int32_t kMaxExtent = 1 << 16;
constexpr int32_t kMaxLayers = 1024;

absl::Status CheckExtent(absl::string_view name, int32_t value, int32_t minimum) {
  if (value >= minimum && value <= kMaxExtent && value % 8 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      name, " is ", value, ", expected a multiple of 8 from ", minimum, " to ", kMaxExtent));
}

absl::Status Validate(const FootprintShape& shape) {
  if (absl::Status status = ValidateGeometry(shape.geometry); !status.ok()) return status;
  if (absl::Status status = CheckExtent("hidden", shape.hidden, 8); !status.ok()) return status;
  if (absl::Status status = CheckExtent("intermediate", shape.intermediate, 0); !status.ok()) {
    return status;
  }
  if (shape.layers < 1 || shape.layers > kMaxLayers) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers is ", shape.layers, ", expected 1 to ", kMaxLayers));
  }
  if (shape.weight_scales && shape.weight_format == WeightFormat::kBFloat16) {
    return absl::InvalidArgumentError("weight scales are wanted and the weights are bf16");
  }
  if (shape.weight_scales && shape.intermediate == 0) {
    return absl::InvalidArgumentError("weight scales are wanted and intermediate is 0");
  }
  if (!IsRingCount(shape.dispatch_output_slots) || !IsRingCount(shape.expert_output_slots)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dispatch-output slots is ", shape.dispatch_output_slots, ", expert-output slots ",
        shape.expert_output_slots, ", expected 0 to ", kMaxRingSlots, " of each"));
  }
  if (!shape.gradients) return absl::OkStatus();
  if (shape.intermediate == 0) {
    return absl::InvalidArgumentError("gradients are wanted and intermediate is 0");
  }
  const int32_t own = shape.geometry.experts_per_rank();
  if (shape.geometry.slots >= own) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("gradients are wanted and slots is ",
                                                 shape.geometry.slots,
                                                 ", expected at least experts / ranks = ", own));
}

// Differences of the layout's own offsets, so that the parts add up to the shard.
void AddShard(const ShardLayout& layout, std::vector<BufferBytes>& buffers) {
  const auto add = [&](const char* name, size_t begin, size_t end) {
    buffers.push_back({name, static_cast<int64_t>(end - begin), true});
  };
  add("control_words", layout.control, layout.duplicate_primary);
  add("duplicate_maps", layout.duplicate_primary, layout.rows);
  add("hidden_shard", layout.rows, layout.row_weights);
  add("route_weight_shard", layout.row_weights, layout.rows + layout.area_bytes);
  if (layout.ring_slots == 0) return;
  add("dispatch_output_slots", layout.rows + layout.area_bytes, layout.size_bytes);
}

void AddExpertOutputs(const FootprintShape& shape, std::vector<BufferBytes>& buffers) {
  if (shape.expert_output_slots == 0) return;
  const int64_t slot_bytes =
      shape.geometry.logical_rows() * shape.hidden * static_cast<int64_t>(sizeof(BFloat16));
  buffers.push_back({"expert_output_slots", slot_bytes * shape.expert_output_slots});
}

void AddTokens(const FootprintShape& shape, std::vector<BufferBytes>& buffers) {
  const int64_t routes = shape.geometry.routes();
  const int64_t rows_bytes =
      int64_t{shape.geometry.tokens} * shape.hidden * static_cast<int64_t>(sizeof(BFloat16));
  const int64_t weights_bytes = routes * static_cast<int64_t>(sizeof(float));
  const int64_t ids_bytes = routes * static_cast<int64_t>(sizeof(int32_t));
  buffers.push_back({"tokens_in", rows_bytes + ids_bytes + weights_bytes});
  buffers.push_back({"tokens_out", rows_bytes + weights_bytes});
}

// dst, the placement and the duplicate lists at their longest.
void AddPlan(const Geometry& geometry, std::vector<BufferBytes>& buffers) {
  const int64_t ranks = geometry.ranks;
  const int64_t placement = 3 * ranks * geometry.experts + ranks * ranks + 3 * ranks +
                            3 * ranks * geometry.groups() + ranks * geometry.slots;
  const int64_t lists = 4 * geometry.logical_rows();
  buffers.push_back(
      {"plan", (geometry.routes() + placement + lists) * static_cast<int64_t>(sizeof(int32_t))});
}

void AddWeights(const FootprintShape& shape, std::vector<BufferBytes>& buffers) {
  if (shape.intermediate == 0) return;
  const WeightsShape weights{shape.hidden, shape.intermediate, shape.weight_format,
                             shape.weight_scales};
  const int64_t home = static_cast<int64_t>(
      WeightsLayout::Home(weights, shape.geometry.experts_per_rank()).size_bytes);
  buffers.push_back({"expert_weights", home * shape.layers});
  const int64_t slots =
      shape.geometry.slots == 0
          ? 0
          : static_cast<int64_t>(WeightsLayout::Slots(weights, shape.geometry.slots).size_bytes);
  buffers.push_back({"expert_slots", slots});
}

void AddGradients(const FootprintShape& shape, std::vector<BufferBytes>& buffers) {
  if (!shape.gradients) return;
  const auto block =
      GradientBlockLayout::Create({shape.hidden, shape.intermediate}, shape.geometry.slots,
                                  shape.geometry.experts_per_rank(), shape.layers);
  buffers.push_back(
      {"expert_gradients", static_cast<int64_t>(block.size_bytes - block.first_home)});
  buffers.push_back({"slot_gradients", static_cast<int64_t>(block.first_home)});
}

}  // namespace

int64_t Footprint::shard_bytes() const {
  int64_t bytes = 0;
  for (const BufferBytes& buffer : buffers) bytes += buffer.in_shard ? buffer.bytes : 0;
  return bytes;
}

int64_t Footprint::rank_bytes() const {
  int64_t bytes = 0;
  for (const BufferBytes& buffer : buffers) bytes += buffer.bytes;
  return bytes;
}

absl::StatusOr<Footprint> EstimateFootprint(const FootprintShape& shape) {
  if (absl::Status status = Validate(shape); !status.ok()) return status;
  Footprint footprint;
  AddShard(ShardLayout::Create(shape.geometry, shape.hidden, shape.dispatch_output_slots),
           footprint.buffers);
  AddExpertOutputs(shape, footprint.buffers);
  AddTokens(shape, footprint.buffers);
  AddPlan(shape.geometry, footprint.buffers);
  AddWeights(shape, footprint.buffers);
  AddGradients(shape, footprint.buffers);
  if (shape.source) {
    const size_t bytes = SourceLayout::Create(shape.geometry, shape.hidden).size_bytes;
    footprint.buffers.push_back({"source_shard", static_cast<int64_t>(bytes)});
  }
  return footprint;
}

}  // namespace perigee
