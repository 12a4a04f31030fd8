#include "worker/session/weight_ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"

namespace perigee {
namespace {

std::string Describe(const v1::WeightTarget& target) {
  return absl::StrCat(v1::WeightTarget::Kind_Name(target.kind()), " of layer ", target.layer());
}

}  // namespace

absl::Status CheckWeightTarget(const v1::WeightTarget& target, int32_t layers) {
  if (target.layer() < 0 || target.layer() >= layers) {
    return absl::InvalidArgumentError(absl::StrCat("layer is ", target.layer(), ", the buffer has ",
                                                   layers, " layers of weights"));
  }
  if (target.kind() < v1::WeightTarget::GATE || target.kind() > v1::WeightTarget::DOWN) {
    return absl::InvalidArgumentError(absl::StrCat("weights kind ", static_cast<int>(target.kind()),
                                                   " is unknown, expected gate, up or down"));
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
  absl::Status status = CheckWeightTarget(target, static_cast<int32_t>(layers_.size()));
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
      std::count(layer.matrices.begin(), layer.matrices.end(), Matrix::kComplete) == 3;
  if (complete) layer.held = layer.loading;
  return complete;
}

void WeightLedger::Abandon(const v1::WeightTarget& target) {
  PERIGEE_CHECK(MatrixOf(target) == Matrix::kLoading);
  MatrixOf(target) = Matrix::kMissing;
}

}  // namespace perigee
