// Tensors of a buffer, written to and read from the workers of a group directly.
#ifndef PERIGEE_CLIENT_LIB_RANK_TENSORS_H_
#define PERIGEE_CLIENT_LIB_RANK_TENSORS_H_

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/lib/tensor.h"
#include "grpcpp/channel.h"
#include "kernels/common/ids.h"
#include "proto/v1/groups.pb.h"
#include "proto/v1/worker.grpc.pb.h"

namespace perigee {

// One layer's experts, all E of them; in the buffer's format, here bf16.
struct LayerWeights {
  TensorView gate;  // [E, H, H'] bf16
  TensorView up;    // [E, H, H'] bf16
  TensorView down;  // [E, H', H] bf16
  // Of a buffer with weight_scales; shapes as v1::WeightTarget says, with E. Without an element
  // type: none.
  TensorView gate_scales = {}, up_scales = {}, down_scales = {};
};

// The ranks of one generation of a group, as one buffer's tensors need them: after a loss a new one
// is made from the group's new state. Thread-safe. Calls block; errors name rank, worker and
// address.
class RankTensors {
 public:
  // group: ACTIVE, members in order of rank. A stop request ends transfers with CANCELLED.
  RankTensors(const v1::Group& group, std::string buffer, std::stop_token stop);

  int32_t ranks() const { return static_cast<int32_t>(peers_.size()); }

  absl::Status Write(RankId rank, const std::string& name, const TensorView& tensor);
  absl::StatusOr<Tensor> Read(RankId rank, const std::string& name);
  // tensor: as v1::PlanTarget says.
  absl::StatusOr<Tensor> ReadPlan(RankId rank, const std::string& plan, const std::string& tensor);
  // Gives each rank the matrices of its E/R home experts. E % R must be 0.
  absl::Status LoadLayer(int32_t layer, uint64_t version, const LayerWeights& weights);

  // One matrix of a rank's gradients, as v1::GradientTarget says.
  absl::Status WriteGradients(RankId rank, const v1::GradientTarget& matrix,
                              const TensorView& tensor);
  absl::StatusOr<Tensor> ReadGradients(RankId rank, const v1::GradientTarget& matrix);

  // Calls work for every rank, several at a time; the first error in order of rank.
  absl::Status ForEachRank(absl::FunctionRef<absl::Status(RankId)> work) const;

 private:
  struct Peer {
    std::string description;
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<v1::WorkerService::StubInterface> stub;
  };

  v1::TensorTarget Target() const;
  absl::Status WriteTo(RankId rank, const v1::TensorTarget& target, const TensorView& tensor);
  absl::StatusOr<Tensor> ReadFrom(RankId rank, const v1::TensorTarget& target);
  absl::Status Annotate(RankId rank, const absl::Status& status) const;

  const std::string buffer_;
  const uint64_t generation_;
  const std::stop_token stop_;
  std::vector<Peer> peers_;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_RANK_TENSORS_H_
