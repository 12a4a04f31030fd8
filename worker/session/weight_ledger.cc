#include "worker/session/weight_ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/common/check.h"

namespace perigee {
namespace {

std::string Describe(const v1::WeightTarget& target) {
  return absl::StrCat(v1::WeightTarget::Kind_Name(target.kind()), " of layer ", target.layer());
}

}  // namespace

absl::Status CheckWeightTarget(const v1::WeightTarget& target, int32_t layers, int parts) {
  if (target.layer() < 0 || target.layer() >= layers) {
    return absl::InvalidArgumentError(absl::StrCat("layer is ", target.layer(), ", the buffer has ",
                                                   layers, " layers of weights"));
  }
  if (target.kind() < v1::WeightTarget::GATE || target.kind() >= v1::WeightTarget::GATE + parts) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights kind ", static_cast<int>(target.kind()),
                     " is not of this buffer, expected gate, up or down",
                     parts > kWeightMatrices ? ", or the scales of one" : ""));
  }
  if (target.version() == 0) {
    return absl::InvalidArgumentError("weights version is 0, expected another number");
  }
  return absl::OkStatus();
}

WeightLedger::Matrix& WeightLedger::MatrixOf(const v1::WeightTarget& target) {
  return layers_[target.layer()].matrices[target.kind() - v1::WeightTarget::GATE];
}

absl::Status WeightLedger::Begin(const v1::WeightTarget& target) {
  absl::Status status = CheckWeightTarget(target, static_cast<int32_t>(layers_.size()), parts_);
  if (!status.ok()) return status;
  Layer& layer = layers_[target.layer()];
  Matrix& matrix = MatrixOf(target);
  if (matrix == Matrix::kLoading) {
    return absl::AbortedError(absl::StrCat(Describe(target), " is being loaded by another call"));
  }
  if (layer.loading != target.version()) {
    if (std::count(layer.matrices.begin(), layer.matrices.end(), Matrix::kLoading) > 0) {
      return absl::AbortedError(absl::StrCat("version ", layer.loading, " of layer ",
                                             target.layer(), " is being loaded, not ",
                                             target.version()));
    }
    layer.matrices.fill(Matrix::kMissing);
    layer.loading = target.version();
  }
  layer.held = 0;
  matrix = Matrix::kLoading;
  return absl::OkStatus();
}

bool WeightLedger::Finish(const v1::WeightTarget& target) {
  Layer& layer = layers_[target.layer()];
  PERIGEE_CHECK(MatrixOf(target) == Matrix::kLoading && layer.loading == target.version());
  MatrixOf(target) = Matrix::kComplete;
  const bool complete =
      std::count(layer.matrices.begin(), layer.matrices.end(), Matrix::kComplete) == parts_;
  if (complete) layer.held = layer.loading;
  return complete;
}

void WeightLedger::Abandon(const v1::WeightTarget& target) {
  PERIGEE_CHECK(MatrixOf(target) == Matrix::kLoading);
  MatrixOf(target) = Matrix::kMissing;
}

absl::Status WeightLedger::CheckComplete(int32_t layer) const {
  const Layer& held = layers_[layer];
  if (held.held != 0 || held.loading == 0) return absl::OkStatus();
  std::vector<std::string> missing;
  for (int part = 0; part < parts_; ++part) {
    if (held.matrices[part] == Matrix::kComplete) continue;
    missing.push_back(v1::WeightTarget::Kind_Name(
        static_cast<v1::WeightTarget::Kind>(v1::WeightTarget::GATE + part)));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("version ", held.loading, " of layer ", layer,
                   " is incomplete: ", absl::StrJoin(missing, ", "), " missing"));
}

}  // namespace perigee
