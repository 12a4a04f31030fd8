// The file of `perigee run moe-layer`: one mixture-of-experts layer with its tokens.
//
//   hidden          [Rf, Sf, H] bf16     tokens; the ranks of the file are only how it is cut
//   topk_experts    [Rf, Sf, K] integer  expert ids, -1 = masked
//   route_weights   [Rf, Sf, K] f32
//   gate, up        [E, H, H'] bf16
//   down            [E, H', H] bf16
//   expected_output [Rf, Sf, H] f32      optional
#ifndef PERIGEE_CLIENT_CLI_RUN_LAYER_INPUT_H_
#define PERIGEE_CLIENT_CLI_RUN_LAYER_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/lib/rank_tensors.h"
#include "client/lib/tensor.h"
#include "proto/support/tensor_file.h"

namespace perigee {

// One rank's share of the tokens.
struct RankInput {
  TensorView hidden;         // [S, H] bf16
  TensorView topk_experts;   // [S, K] int32
  TensorView route_weights;  // [S, K] f32
};

// Immutable; views live as long as it does.
class LayerInput {
 public:
  // INVALID_ARGUMENT or NOT_FOUND: names the path, the tensor and what was expected of it; ids out
  // of range are named with their rank, token and k.
  static absl::StatusOr<LayerInput> Open(const std::string& path);

  int32_t file_ranks() const { return file_ranks_; }      // Rf
  int64_t tokens() const { return tokens_; }              // Rf * Sf
  int32_t hidden() const { return hidden_; }              // H
  int32_t topk() const { return topk_; }                  // K
  int32_t experts() const { return experts_; }            // E
  int32_t intermediate() const { return intermediate_; }  // H'

  // Of `ranks` that share the tokens evenly.
  RankInput ForRank(int32_t rank, int32_t ranks) const;
  LayerWeights weights() const;
  // [tokens * H] f32, if the file has it.
  absl::optional<absl::Span<const std::byte>> expected_output() const { return expected_output_; }

 private:
  explicit LayerInput(TensorFile file) : file_(std::move(file)) {}
  absl::Status ReadShapes();
  absl::Status CheckShapes() const;
  absl::Status ReadRoutes();
  TensorView View(absl::string_view name, v1::TensorDtype dtype) const;

  TensorFile file_;
  std::vector<int32_t> topk_experts_;
  absl::optional<absl::Span<const std::byte>> expected_output_;
  int32_t file_ranks_ = 0;
  int64_t file_tokens_ = 0;  // Sf
  int64_t tokens_ = 0;
  int32_t hidden_ = 0;
  int32_t topk_ = 0;
  int32_t experts_ = 0;
  int32_t intermediate_ = 0;
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_RUN_LAYER_INPUT_H_
