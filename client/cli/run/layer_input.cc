#include "client/cli/run/layer_input.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace perigee {
namespace {

constexpr const char* kExpectedOutput = "expected_output";

absl::Status Refuse(const TensorFile& file, const TensorInfo& tensor, const std::string& expected) {
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor ", tensor.name, " is ",
                                                 tensor.Describe(), ", expected ", expected));
}

// A tensor of three dimensions that fit 31 bits.
absl::StatusOr<const TensorInfo*> GetThreeDimensional(const TensorFile& file,
                                                      absl::string_view name) {
  auto tensor = file.Get(name);
  if (!tensor.ok()) return tensor;
  bool fits = (*tensor)->shape.size() == 3;
  for (const int64_t size : (*tensor)->shape) fits = fits && size <= INT32_MAX;
  if (!fits) return Refuse(file, **tensor, "three dimensions");
  return tensor;
}

absl::Status CheckTensor(const TensorFile& file, absl::string_view name,
                         const std::vector<int64_t>& shape, absl::optional<TensorDtype> dtype) {
  const auto tensor = file.Get(name);
  if (!tensor.ok()) return tensor.status();
  if ((*tensor)->shape == shape && (!dtype || (*tensor)->dtype == *dtype)) return absl::OkStatus();
  const std::string kind = dtype ? std::string(DtypeName(*dtype)) : "integers";
  return Refuse(file, **tensor, absl::StrCat(kind, " [", absl::StrJoin(shape, ", "), "]"));
}

}  // namespace

absl::StatusOr<LayerInput> LayerInput::Open(const std::string& path) {
  auto file = TensorFile::Open(path);
  if (!file.ok()) return file.status();
  LayerInput input(*std::move(file));
  absl::Status status = input.ReadShapes();
  if (status.ok()) status = input.CheckShapes();
  if (status.ok()) status = input.ReadRoutes();
  if (!status.ok()) return status;
  if (const TensorInfo* expected = input.file_.Find(kExpectedOutput)) {
    input.expected_output_ = input.file_.data(*expected);
  }
  return input;
}

// Takes every size from the tensor that defines it.
absl::Status LayerInput::ReadShapes() {
  const auto hidden = GetThreeDimensional(file_, "hidden");
  if (!hidden.ok()) return hidden.status();
  const auto routes = GetThreeDimensional(file_, "topk_experts");
  if (!routes.ok()) return routes.status();
  const auto gate = GetThreeDimensional(file_, "gate");
  if (!gate.ok()) return gate.status();
  file_ranks_ = static_cast<int32_t>((*hidden)->shape[0]);
  file_tokens_ = (*hidden)->shape[1];
  hidden_ = static_cast<int32_t>((*hidden)->shape[2]);
  tokens_ = file_ranks_ * file_tokens_;
  topk_ = static_cast<int32_t>((*routes)->shape[2]);
  experts_ = static_cast<int32_t>((*gate)->shape[0]);
  intermediate_ = static_cast<int32_t>((*gate)->shape[2]);
  if (file_ranks_ == 0) return Refuse(file_, **hidden, "at least one rank");
  if (experts_ == 0) return Refuse(file_, **gate, "at least one expert");
  if (topk_ == 0) return Refuse(file_, **routes, "at least one route for a token");
  return absl::OkStatus();
}

absl::Status LayerInput::CheckShapes() const {
  const std::vector<int64_t> rows = {file_ranks_, file_tokens_, hidden_};
  const std::vector<int64_t> routes = {file_ranks_, file_tokens_, topk_};
  const std::vector<int64_t> into = {experts_, hidden_, intermediate_};
  const std::vector<int64_t> out_of = {experts_, intermediate_, hidden_};
  const struct {
    const char* name;
    const std::vector<int64_t>& shape;
    absl::optional<TensorDtype> dtype;
  } tensors[] = {
      {"hidden", rows, TensorDtype::kBF16},
      {"topk_experts", routes, absl::nullopt},
      {"route_weights", routes, TensorDtype::kF32},
      {"gate", into, TensorDtype::kBF16},
      {"up", into, TensorDtype::kBF16},
      {"down", out_of, TensorDtype::kBF16},
      {kExpectedOutput, rows, TensorDtype::kF32},
  };
  for (const auto& tensor : tensors) {
    if (tensor.name == kExpectedOutput && file_.Find(kExpectedOutput) == nullptr) continue;
    const absl::Status status = CheckTensor(file_, tensor.name, tensor.shape, tensor.dtype);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status LayerInput::ReadRoutes() {
  auto ids = file_.ReadInt32(*file_.Find("topk_experts"));
  if (!ids.ok()) {
    return absl::Status(ids.status().code(),
                        absl::StrCat(file_.path(), ": ", ids.status().message()));
  }
  topk_experts_ = *std::move(ids);
  for (size_t i = 0; i < topk_experts_.size(); ++i) {
    const int32_t id = topk_experts_[i];
    if (id >= -1 && id < experts_) continue;
    const int64_t token = static_cast<int64_t>(i) / topk_;
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path(), ": topk_experts of rank ", token / file_tokens_, ", token ",
                     token % file_tokens_, ", k ", static_cast<int64_t>(i) % topk_, " is ", id,
                     ", expected -1 to ", experts_ - 1));
  }
  return absl::OkStatus();
}

TensorView LayerInput::View(absl::string_view name, v1::TensorDtype dtype) const {
  const TensorInfo* info = file_.Find(name);
  return {dtype, info->shape, file_.data(*info)};
}

RankInput LayerInput::ForRank(int32_t rank, int32_t ranks) const {
  const int64_t share = tokens_ / ranks;
  TensorView hidden = View("hidden", v1::TENSOR_DTYPE_BFLOAT16);
  hidden.shape = {tokens_, hidden_};
  TensorView weights = View("route_weights", v1::TENSOR_DTYPE_FLOAT32);
  weights.shape = {tokens_, topk_};
  const auto* ids = reinterpret_cast<const std::byte*>(topk_experts_.data());
  const TensorView routes = {v1::TENSOR_DTYPE_INT32,
                             {tokens_, topk_},
                             absl::MakeConstSpan(ids, topk_experts_.size() * sizeof(int32_t))};
  return {Slice(hidden, rank * share, share), Slice(routes, rank * share, share),
          Slice(weights, rank * share, share)};
}

LayerWeights LayerInput::weights() const {
  return {View("gate", v1::TENSOR_DTYPE_BFLOAT16), View("up", v1::TENSOR_DTYPE_BFLOAT16),
          View("down", v1::TENSOR_DTYPE_BFLOAT16)};
}

}  // namespace perigee
