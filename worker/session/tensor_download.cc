#include "worker/session/tensor_download.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/ops/failure_reason.h"
#include "worker/session/gradient_matrix.h"
#include "worker/session/plan_tensor.h"
#include "worker/session/weight_matrix.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<TensorDownload>> TensorDownload::Begin(
    std::shared_ptr<SessionBuffer> buffer, const v1::TensorTarget& target) {
  std::unique_ptr<TensorDownload> download(new TensorDownload(buffer, target));
  absl::StatusOr<SessionBuffer::Access> access = buffer->Enter();
  if (!access.ok()) return access.status();
  absl::Status status;
  switch (target.target_case()) {
    case v1::TensorTarget::kTensor:
      status = download->BeginTensor(*access);
      break;
    case v1::TensorTarget::kWeights:
      status = download->BeginWeights(*access);
      break;
    case v1::TensorTarget::kPlan:
      status = download->BeginPlan(*access);
      break;
    case v1::TensorTarget::kGradients:
      status = download->BeginGradients();
      break;
    case v1::TensorTarget::TARGET_NOT_SET:
      status = absl::InvalidArgumentError(
          "no target is set, expected tensor, weights, plan or gradients");
  }
  if (!status.ok()) return status;
  return download;
}

absl::Status TensorDownload::BeginTensor(const SessionBuffer::Access& access) {
  absl::StatusOr<std::shared_ptr<StoredTensor>> tensor = access.tensors().Find(target_.tensor());
  if (!tensor.ok()) return tensor.status();
  tensor_ = *tensor;
  spec_ = (*tensor)->spec();
  return absl::OkStatus();
}

absl::Status TensorDownload::BeginWeights(const SessionBuffer::Access& access) {
  absl::Status status = CheckWeightTarget(target_.weights(), buffer_->shape().layers,
                                          buffer_->shape().weight_parts());
  if (!status.ok()) return status;
  spec_ = WeightMatrixSpec(target_.weights().kind(), buffer_->shape());
  return Source(access).status();
}

absl::Status TensorDownload::BeginGradients() {
  absl::Status status = CheckGradientTarget(target_.gradients(), buffer_->shape());
  if (status.ok()) spec_ = GradientMatrixSpec(target_.gradients(), buffer_->shape());
  return status;
}

absl::Status TensorDownload::BeginPlan(const SessionBuffer::Access& access) {
  absl::StatusOr<PlanPtr> plan = access.objects().FindPlan(target_.plan().plan());
  if (!plan.ok()) return plan.status();
  absl::StatusOr<PlanTensors> tensors = access.data_path().ReadPlan(*plan);
  if (!tensors.ok()) return tensors.status();
  absl::StatusOr<PlanTensor> selected =
      SelectPlanTensor(*tensors, target_.plan().tensor(), buffer_->shape().geometry);
  if (!selected.ok()) return selected.status();
  spec_ = MakeTensorSpec(v1::TENSOR_DTYPE_INT32, std::move(selected->shape));
  plan_ = std::move(selected->values);
  return absl::OkStatus();
}

absl::StatusOr<const std::byte*> TensorDownload::Source(const SessionBuffer::Access& access) const {
  const v1::WeightTarget& weights = target_.weights();
  if (target_.has_weights()) {
    const uint64_t held = access.weights().version(weights.layer());
    if (held == weights.version() && held != 0) {
      return WeightMatrix(access.memory(), weights);
    }
    return StaleObject(absl::StrCat("layer ", weights.layer(), " holds version ", held, ", not ",
                                    weights.version()));
  }
  if (target_.has_gradients()) return GradientMatrix(access.memory(), target_.gradients());
  const std::shared_ptr<StoredTensor> tensor = tensor_.lock();
  if (tensor) return tensor->data();
  return absl::AbortedError(
      absl::StrCat("tensor '", target_.tensor(), "' was replaced while it was read"));
}

absl::StatusOr<std::string> TensorDownload::Next(size_t limit_bytes) {
  std::string bytes(std::min<uint64_t>(limit_bytes, spec_.size_bytes - read_bytes_), '\0');
  if (bytes.empty()) return bytes;
  if (target_.has_plan()) {
    bytes.assign(reinterpret_cast<const char*>(plan_.data()) + read_bytes_, bytes.size());
  } else {
    absl::StatusOr<SessionBuffer::Access> access = buffer_->Enter();
    if (!access.ok()) return access.status();
    absl::StatusOr<const std::byte*> source = Source(*access);
    if (!source.ok()) return source.status();
    absl::Status status = access->backend().CopyOut(
        absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()),
        *source + read_bytes_);
    if (!status.ok()) return status;
  }
  read_bytes_ += bytes.size();
  return bytes;
}

}  // namespace perigee
