#include "worker/session/gradient_matrix.h"

#include "absl/strings/str_cat.h"
#include "kernels/layout/gradients_layout.h"

namespace perigee {

absl::Status CheckGradientTarget(const v1::GradientTarget& target, const BufferShape& shape) {
  if (!shape.gradients) return absl::InvalidArgumentError("the buffer keeps no gradients");
  if (target.kind() < v1::WeightTarget::GATE || target.kind() > v1::WeightTarget::DOWN) {
    return absl::InvalidArgumentError(
        absl::StrCat("kind is ", static_cast<int>(target.kind()), ", expected GATE, UP or DOWN"));
  }
  const int32_t layers = target.slots() ? 1 : shape.layers;
  if (target.layer() >= 0 && target.layer() < layers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("layer of gradients",
                                                 target.slots() ? " in slots" : "", " is ",
                                                 target.layer(), ", expected 0 to ", layers - 1));
}

TensorSpec GradientMatrixSpec(const v1::GradientTarget& target, const BufferShape& shape) {
  const bool down = target.kind() == v1::WeightTarget::DOWN;
  const int64_t count = target.slots() ? shape.geometry.slots : shape.geometry.experts_per_rank();
  return MakeTensorSpec(v1::TENSOR_DTYPE_FLOAT32, {count, down ? shape.intermediate : shape.hidden,
                                                   down ? shape.hidden : shape.intermediate});
}

std::byte* GradientMatrix(const BufferMemory& memory, const v1::GradientTarget& target) {
  const GradientBlockLayout& block = memory.gradients_layout();
  const GradientsLayout& matrices = target.slots() ? block.slots : block.home;
  const size_t first = target.slots() ? 0 : block.home_offset(target.layer());
  const size_t offset = target.kind() == v1::WeightTarget::UP     ? matrices.up
                        : target.kind() == v1::WeightTarget::DOWN ? matrices.down
                                                                  : matrices.gate;
  return memory.own_gradients()->data() + first + offset;
}

}  // namespace perigee
