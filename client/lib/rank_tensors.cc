#include "client/lib/rank_tensors.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/lib/grpc_call.h"
#include "client/lib/tensor_transfer.h"

namespace perigee {
namespace {

// Transfers share the machine's network; more at a time only take more memory.
constexpr size_t kMaxTransfers = 16;

}  // namespace

RankTensors::RankTensors(const v1::Group& group, std::string buffer, std::stop_token stop)
    : buffer_(std::move(buffer)), generation_(group.generation()), stop_(std::move(stop)) {
  for (const v1::GroupMember& member : group.members()) {
    std::shared_ptr<grpc::Channel> channel = NewChannel(member.address());
    auto stub = v1::WorkerService::NewStub(channel);
    peers_.push_back(
        {absl::StrCat("rank ", member.rank(), " (", member.worker(), " at ", member.address(), ")"),
         std::move(channel), std::move(stub)});
  }
}

absl::Status RankTensors::Write(RankId rank, const std::string& name, const TensorView& tensor) {
  v1::TensorTarget target = Target();
  target.set_tensor(name);
  return WriteTo(rank, target, tensor);
}

absl::StatusOr<Tensor> RankTensors::Read(RankId rank, const std::string& name) {
  v1::TensorTarget target = Target();
  target.set_tensor(name);
  return ReadFrom(rank, target);
}

absl::StatusOr<Tensor> RankTensors::ReadPlan(RankId rank, const std::string& plan,
                                             const std::string& tensor) {
  v1::TensorTarget target = Target();
  target.mutable_plan()->set_plan(plan);
  target.mutable_plan()->set_tensor(tensor);
  return ReadFrom(rank, target);
}

absl::Status RankTensors::LoadLayer(int32_t layer, uint64_t version, const LayerWeights& weights) {
  std::vector<std::pair<v1::WeightTarget::Kind, const TensorView*>> matrices = {
      {v1::WeightTarget::GATE, &weights.gate},
      {v1::WeightTarget::UP, &weights.up},
      {v1::WeightTarget::DOWN, &weights.down},
  };
  const std::pair<v1::WeightTarget::Kind, const TensorView*> scales[] = {
      {v1::WeightTarget::GATE_SCALES, &weights.gate_scales},
      {v1::WeightTarget::UP_SCALES, &weights.up_scales},
      {v1::WeightTarget::DOWN_SCALES, &weights.down_scales},
  };
  for (const auto& scale : scales) {
    if (scale.second->dtype != v1::TENSOR_DTYPE_UNSPECIFIED) matrices.push_back(scale);
  }
  for (const auto& [kind, matrix] : matrices) {
    if (matrix->shape.size() != 3 || matrix->shape[0] % ranks() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(v1::WeightTarget::Kind_Name(kind), " weights ",
                       DescribeTensor(matrix->dtype, matrix->shape),
                       ": expected three dimensions, the first a multiple of ", ranks(), " ranks"));
    }
  }
  return ForEachRank([&](RankId rank) -> absl::Status {
    for (const auto& [kind, matrix] : matrices) {
      v1::TensorTarget target = Target();
      target.mutable_weights()->set_layer(layer);
      target.mutable_weights()->set_version(version);
      target.mutable_weights()->set_kind(kind);
      const int64_t home = matrix->shape[0] / ranks();
      absl::Status status = WriteTo(rank, target, Slice(*matrix, rank.value * home, home));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  });
}

absl::Status RankTensors::WriteGradients(RankId rank, const v1::GradientTarget& matrix,
                                         const TensorView& tensor) {
  v1::TensorTarget target = Target();
  *target.mutable_gradients() = matrix;
  return WriteTo(rank, target, tensor);
}

absl::StatusOr<Tensor> RankTensors::ReadGradients(RankId rank, const v1::GradientTarget& matrix) {
  v1::TensorTarget target = Target();
  *target.mutable_gradients() = matrix;
  return ReadFrom(rank, target);
}

absl::Status RankTensors::ForEachRank(absl::FunctionRef<absl::Status(RankId)> work) const {
  std::vector<absl::Status> outcomes(peers_.size());
  std::atomic<int32_t> next{0};
  const auto take = [&] {
    for (int32_t rank = next++; rank < ranks(); rank = next++) outcomes[rank] = work(RankId(rank));
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(peers_.size(), kMaxTransfers); ++i) threads.emplace_back(take);
  take();
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& outcome : outcomes) {
    if (!outcome.ok()) return outcome;
  }
  return absl::OkStatus();
}

v1::TensorTarget RankTensors::Target() const {
  v1::TensorTarget target;
  target.set_buffer(buffer_);
  target.set_generation(generation_);
  return target;
}

absl::Status RankTensors::WriteTo(RankId rank, const v1::TensorTarget& target,
                                  const TensorView& tensor) {
  const Peer& peer = peers_[rank.value];
  ConnectWithin(*peer.channel);
  return Annotate(rank, WriteTensor(*peer.stub, target, tensor, stop_));
}

absl::StatusOr<Tensor> RankTensors::ReadFrom(RankId rank, const v1::TensorTarget& target) {
  const Peer& peer = peers_[rank.value];
  ConnectWithin(*peer.channel);
  auto tensor = ReadTensor(*peer.stub, target, stop_);
  if (!tensor.ok()) return Annotate(rank, tensor.status());
  return tensor;
}

absl::Status RankTensors::Annotate(RankId rank, const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(peers_[rank.value].description, ": ", status.message()));
}

}  // namespace perigee
