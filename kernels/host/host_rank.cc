#include "kernels/host/host_rank.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

absl::Status CheckLive(const char* what, Sequence held, Sequence wanted) {
  if (held == wanted) return absl::OkStatus();
  const std::string holder =
      held.value == 0 ? std::string("no plan") : absl::StrCat("the plan of sequence ", held.value);
  return absl::InvalidArgumentError(
      absl::StrCat("the shard holds ", what, " of ", holder, ", expected the plan of sequence ",
                   wanted.value, ": a later operation has overwritten or consumed them"));
}

}  // namespace

OperationDescriptor HostRank::Descriptor(Operation operation) const {
  OperationDescriptor descriptor;
  descriptor.operation = static_cast<uint32_t>(operation);
  descriptor.tokens = geometry.tokens;
  descriptor.hidden = hidden;
  descriptor.topk = geometry.topk;
  descriptor.experts = geometry.experts;
  descriptor.slots = geometry.slots;
  descriptor.token_padding = geometry.token_padding;
  descriptor.dtype = static_cast<uint32_t>(Dtype::kBFloat16);
  return descriptor;
}

absl::Status HostRank::CheckOutsideShard(const char* what, const void* data, size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const auto shard = reinterpret_cast<uintptr_t>(own().control);
  if (bytes == 0 || begin + bytes <= shard || begin >= shard + layout.size_bytes) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " lies in the shard that the operation uses; expected other memory"));
}

absl::Status HostRank::CheckRowsSource(const HostPlan& plan, const BFloat16* rows) const {
  if (rows == own().rows) return CheckLive("rows", live.rows, plan.tag().sequence);
  return CheckOutsideShard("rows", rows, row_bytes(plan.used_rows()));
}

absl::Status HostRank::CheckWeightsSource(const HostPlan& plan, const float* row_weights) const {
  if (row_weights == nullptr) return absl::OkStatus();
  if (row_weights == own().row_weights) {
    return CheckLive("row weights", live.weights, plan.tag().sequence);
  }
  return CheckOutsideShard("row weights", row_weights, plan.used_rows() * sizeof(float));
}

absl::Status CheckWeights(const HostRank& rank, const ExpertWeights& weights) {
  const WeightsShape& shape = weights.shape;
  if (shape.hidden != rank.hidden) {
    return absl::InvalidArgumentError(
        absl::StrCat("weights have hidden size ", shape.hidden, ", the buffer has ", rank.hidden));
  }
  if (shape.intermediate <= 0 || shape.intermediate % 8 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("weights have intermediate size ",
                                                   shape.intermediate,
                                                   ", expected a positive multiple of 8"));
  }
  if (weights.version == 0) {
    return absl::InvalidArgumentError("weights version is 0, which means that none are loaded");
  }
  if (weights.home.size() != rank.shards.size()) {
    return absl::InvalidArgumentError(absl::StrCat("weights have ", weights.home.size(),
                                                   " home blocks, expected one of each of ",
                                                   rank.shards.size(), " ranks"));
  }
  for (size_t home = 0; home < weights.home.size(); ++home) {
    if (weights.home[home] != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat("home block of rank ", home, " is null"));
  }
  if (rank.geometry.slots > 0 && weights.slots == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot block is null, expected ", rank.geometry.slots, " slots"));
  }
  return absl::OkStatus();
}

}  // namespace perigee
