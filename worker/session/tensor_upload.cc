#include "worker/session/tensor_upload.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/session/gradient_matrix.h"
#include "worker/session/weight_matrix.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<TensorUpload>> TensorUpload::Begin(
    std::shared_ptr<SessionBuffer> buffer, const v1::TensorTarget& target,
    const v1::TensorHeader& header) {
  absl::StatusOr<TensorSpec> spec = ParseTensorHeader(header);
  if (!spec.ok()) return spec.status();
  // The lock goes before an upload that has failed, which takes it once more.
  std::unique_ptr<TensorUpload> upload(new TensorUpload(buffer, target, *std::move(spec)));
  absl::StatusOr<SessionBuffer::Access> access = buffer->Enter();
  if (!access.ok()) return access.status();
  absl::Status status;
  if (target.has_tensor()) {
    status = upload->BeginTensor(*access);
  } else if (target.has_weights()) {
    status = upload->BeginWeights(*access);
  } else if (target.has_gradients()) {
    status = upload->BeginGradients();
  } else {
    status = absl::InvalidArgumentError(
        "the target can not be written, expected tensor, weights or gradients");
  }
  if (!status.ok()) return status;
  return upload;
}

TensorUpload::TensorUpload(std::shared_ptr<SessionBuffer> buffer, const v1::TensorTarget& target,
                           TensorSpec spec)
    : buffer_(std::move(buffer)), target_(target), spec_(std::move(spec)) {}

TensorUpload::~TensorUpload() {
  if (loading_weights_) buffer_->AbandonWeights(target_.weights());
}

absl::Status TensorUpload::BeginTensor(SessionBuffer::Access& access) {
  absl::Status status = CheckObjectName("tensor", target_.tensor());
  if (status.ok()) status = CheckNamedTensor(spec_, buffer_->shape());
  if (!status.ok()) return status;
  absl::StatusOr<std::shared_ptr<StoredTensor>> tensor = access.tensors().Allocate(spec_);
  if (tensor.ok()) tensor_ = *std::move(tensor);
  return tensor.status();
}

absl::Status TensorUpload::BeginWeights(SessionBuffer::Access& access) {
  const v1::WeightTarget& weights = target_.weights();
  absl::Status status =
      CheckWeightTarget(weights, buffer_->shape().layers, buffer_->shape().weight_parts());
  if (!status.ok()) return status;
  const TensorSpec expected = WeightMatrixSpec(weights.kind(), buffer_->shape());
  if (spec_ != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weights are ", Describe(spec_), ", expected ", Describe(expected)));
  }
  status = access.weights().Begin(weights);
  if (!status.ok()) return status;
  loading_weights_ = true;
  return WriteHomeHeader(access.backend(), access.memory(), weights.layer(), 0);
}

absl::Status TensorUpload::BeginGradients() const {
  absl::Status status = CheckGradientTarget(target_.gradients(), buffer_->shape());
  if (!status.ok()) return status;
  const TensorSpec expected = GradientMatrixSpec(target_.gradients(), buffer_->shape());
  if (spec_ == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the gradients are ", Describe(spec_), ", expected ", Describe(expected)));
}

std::byte* TensorUpload::Destination(const SessionBuffer::Access& access) const {
  if (tensor_) return tensor_->data() + written_bytes_;
  if (target_.has_gradients()) {
    return GradientMatrix(access.memory(), target_.gradients()) + written_bytes_;
  }
  return WeightMatrix(access.memory(), target_.weights()) + written_bytes_;
}

absl::Status TensorUpload::Append(absl::string_view bytes) {
  if (bytes.size() > spec_.size_bytes - written_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat(
        written_bytes_ + bytes.size(), " bytes were sent, the header says ", spec_.size_bytes));
  }
  if (bytes.empty()) return absl::OkStatus();
  absl::StatusOr<SessionBuffer::Access> access = buffer_->Enter();
  if (!access.ok()) return access.status();
  absl::Status status = access->backend().CopyIn(
      Destination(*access),
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
  if (status.ok()) written_bytes_ += bytes.size();
  return status;
}

absl::Status TensorUpload::Finish() {
  if (written_bytes_ != spec_.size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(written_bytes_, " bytes were sent, the header says ", spec_.size_bytes));
  }
  absl::StatusOr<SessionBuffer::Access> access = buffer_->Enter();
  if (!access.ok()) return access.status();
  if (tensor_) return access->tensors().Put(target_.tensor(), std::move(tensor_));
  if (target_.has_gradients()) return absl::OkStatus();
  loading_weights_ = false;
  if (!access->weights().Finish(target_.weights())) return absl::OkStatus();
  return WriteHomeHeader(access->backend(), access->memory(), target_.weights().layer(),
                         target_.weights().version());
}

}  // namespace perigee
