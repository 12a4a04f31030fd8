#include "worker/memory/buffer_shape.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/layout/rings.h"
#include "kernels/plan/validate.h"
#include "proto/local/descriptor_message.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

// Far above any model; with them no size overflows 64 bits.
constexpr int32_t kMaxRowElements = 1 << 17;
constexpr int32_t kMaxLayers = kMaxParts - 4;
// They are twice as large as their weights.
constexpr int32_t kMaxLayersWithGradients = kMaxLayers / 2;

absl::Status CheckRow(absl::string_view field, int32_t value, int32_t least) {
  if (value >= least && value <= kMaxRowElements && value % 8 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      field, " is ", value, ", expected a multiple of 8 from ", least, " to ", kMaxRowElements));
}

absl::Status CheckLayers(int32_t layers, int32_t intermediate) {
  if (intermediate == 0 && layers != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers is ", layers, ", expected 0 because intermediate is 0"));
  }
  if (intermediate > 0 && (layers < 1 || layers > kMaxLayers)) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers is ", layers, ", expected 1 to ", kMaxLayers));
  }
  return absl::OkStatus();
}

absl::Status CheckGradients(const BufferShape& shape) {
  if (!shape.gradients) return absl::OkStatus();
  if (shape.layers > kMaxLayersWithGradients) {
    return absl::InvalidArgumentError(absl::StrCat("gradients are wanted and layers is ",
                                                   shape.layers, ", expected at most ",
                                                   kMaxLayersWithGradients));
  }
  if (!shape.has_weights()) {
    return absl::InvalidArgumentError("gradients are wanted and layers is 0, expected layers");
  }
  if (shape.geometry.slots >= shape.geometry.experts_per_rank()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("gradients are wanted and slots is ", shape.geometry.slots,
                   ", expected at least experts / ranks = ", shape.geometry.experts_per_rank()));
}

absl::Status CheckRings(const BufferShape& shape) {
  if (IsRingCount(shape.dispatch_output_slots) && IsRingCount(shape.expert_output_slots)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "dispatch_output_slots is ", shape.dispatch_output_slots, " and expert_output_slots is ",
      shape.expert_output_slots, ", expected 0 to ", kMaxRingSlots, " of each"));
}

absl::Status ReadFormat(const v1::BufferShape& wire, BufferShape& shape) {
  switch (wire.weight_format()) {
    case v1::BufferShape::WEIGHT_FORMAT_UNSPECIFIED:
    case v1::BufferShape::WEIGHT_FORMAT_BFLOAT16:
      shape.weight_format = WeightFormat::kBFloat16;
      break;
    case v1::BufferShape::WEIGHT_FORMAT_8BIT:
      shape.weight_format = WeightFormat::k8Bit;
      break;
    case v1::BufferShape::WEIGHT_FORMAT_MXFP4:
      shape.weight_format = WeightFormat::kMxfp4;
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("weight_format ",
                                                     static_cast<int>(wire.weight_format()),
                                                     " is unknown, expected bf16, 8 bit or MXFP4"));
  }
  shape.weight_scales = wire.weight_scales();
  if (!shape.weight_scales || shape.weight_format != WeightFormat::kBFloat16) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "weight_scales is set and weight_format is bf16, which has none");
}

}  // namespace

absl::StatusOr<BufferShape> ParseBufferShape(const v1::BufferShape& wire, int32_t ranks) {
  BufferShape shape;
  shape.geometry.ranks = ranks;
  shape.geometry.experts = wire.experts();
  shape.geometry.tokens = wire.tokens();
  shape.geometry.topk = wire.topk();
  shape.geometry.token_padding = wire.token_padding() == 0 ? kTokenPadding : wire.token_padding();
  shape.geometry.slots = wire.has_slots() || ranks < 1 ? wire.slots() : wire.experts() / ranks;
  shape.hidden = wire.hidden();
  shape.intermediate = wire.intermediate();
  shape.layers = wire.layers();
  shape.gradients = wire.gradients();
  shape.source_storage = wire.source_storage();
  shape.peer_store = wire.peer_store();
  shape.refetch = wire.refetch();
  shape.dispatch_output_slots = wire.dispatch_output_slots();
  shape.expert_output_slots = wire.expert_output_slots();
  absl::Status status = ValidateGeometry(shape.geometry);
  if (status.ok()) status = CheckRow("hidden", shape.hidden, 8);
  if (status.ok()) status = CheckRow("intermediate", shape.intermediate, 0);
  if (status.ok()) status = CheckLayers(shape.layers, shape.intermediate);
  if (status.ok()) status = ReadFormat(wire, shape);
  if (status.ok()) status = CheckGradients(shape);
  if (status.ok()) status = CheckRings(shape);
  if (!status.ok()) return status;
  return shape;
}

}  // namespace perigee
