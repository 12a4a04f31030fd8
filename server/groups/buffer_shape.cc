#include "server/groups/buffer_shape.h"

#include "absl/strings/str_cat.h"
#include "kernels/layout/geometry.h"
#include "kernels/layout/rings.h"
#include "kernels/plan/validate.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

constexpr int32_t kElementsPerLine = 8;  // 16 bytes of bf16: what one copy moves
constexpr int32_t kMaxHidden = 1 << 20;
constexpr int32_t kMaxLayers = 4096;
constexpr int64_t kMaxTimeoutMs = 3600 * 1000;

absl::Status CheckWidth(absl::string_view what, int32_t value, int32_t minimum) {
  if (value >= minimum && value <= kMaxHidden && value % kElementsPerLine == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(what, " is ", value, ", expected a multiple of ",
                                                 kElementsPerLine, " from ", minimum, " to ",
                                                 kMaxHidden));
}

absl::Status CheckWeights(const v1::BufferShape& shape) {
  const absl::Status width = CheckWidth("intermediate", shape.intermediate(), 0);
  if (!width.ok()) return width;
  if (shape.layers() < 0 || shape.layers() > kMaxLayers) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers is ", shape.layers(), ", expected 0 to ", kMaxLayers));
  }
  if ((shape.layers() == 0) != (shape.intermediate() == 0)) {
    return absl::InvalidArgumentError(absl::StrCat("layers is ", shape.layers(),
                                                   " and intermediate is ", shape.intermediate(),
                                                   ", expected both or neither to be 0"));
  }
  if (!v1::BufferShape::WeightFormat_IsValid(shape.weight_format())) {
    return absl::InvalidArgumentError(absl::StrCat("weight_format ",
                                                   static_cast<int>(shape.weight_format()),
                                                   " is unknown, expected bf16, 8 bit or MXFP4"));
  }
  const bool quantised = shape.weight_format() == v1::BufferShape::WEIGHT_FORMAT_8BIT ||
                         shape.weight_format() == v1::BufferShape::WEIGHT_FORMAT_MXFP4;
  if (shape.weight_scales() && !quantised) {
    return absl::InvalidArgumentError(
        "weight_scales is set and weight_format is bf16, which has none");
  }
  if (shape.gradients() && shape.layers() == 0) {
    return absl::InvalidArgumentError("gradients are wanted and layers is 0, expected layers");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::BufferShape> CompleteShape(const v1::BufferShape& shape, int32_t ranks) {
  v1::BufferShape complete = shape;
  if (!complete.has_slots()) complete.set_slots(ranks > 0 ? complete.experts() / ranks : 0);
  if (complete.token_padding() == 0) complete.set_token_padding(kTokenPadding);
  const absl::Status hidden = CheckWidth("hidden", complete.hidden(), kElementsPerLine);
  if (!hidden.ok()) return hidden;
  Geometry geometry;
  geometry.ranks = ranks;
  geometry.experts = complete.experts();
  geometry.tokens = complete.tokens();
  geometry.topk = complete.topk();
  geometry.slots = complete.slots();
  geometry.token_padding = complete.token_padding();
  const absl::Status valid = ValidateGeometry(geometry);
  if (!valid.ok()) return valid;
  const absl::Status weights = CheckWeights(complete);
  if (!weights.ok()) return weights;
  if (!IsRingCount(complete.dispatch_output_slots()) ||
      !IsRingCount(complete.expert_output_slots())) {
    return absl::InvalidArgumentError(
        absl::StrCat("dispatch_output_slots is ", complete.dispatch_output_slots(),
                     " and expert_output_slots is ", complete.expert_output_slots(),
                     ", expected 0 to ", kMaxRingSlots, " of each"));
  }
  if (complete.gradients() && geometry.slots < geometry.experts_per_rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("gradients are wanted and slots is ", geometry.slots,
                     ", expected at least experts / ranks = ", geometry.experts_per_rank()));
  }
  return complete;
}

absl::Status CheckTimeouts(int64_t operation_ms, int64_t warmup_ms) {
  const auto check = [](const char* name, int64_t timeout_ms) {
    if (timeout_ms >= 0 && timeout_ms <= kMaxTimeoutMs) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", timeout_ms, ", expected 0 (the default) to ", kMaxTimeoutMs));
  };
  const absl::Status status = check("operation_timeout_ms", operation_ms);
  return status.ok() ? check("warmup_timeout_ms", warmup_ms) : status;
}

absl::Status CheckSms(int32_t sms, int32_t local_sms) {
  if (sms >= 0 && local_sms >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("sms is ", sms, " and local_sms is ", local_sms,
                                                 ", expected 0 (the default) or more"));
}

}  // namespace perigee
