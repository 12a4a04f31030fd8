#include "worker/ops/tensor_spec.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/common/check.h"

namespace perigee {
namespace {

constexpr int kMaxDimensions = 4;
// No tensor is larger; products of sizes up to it do not overflow.
constexpr uint64_t kMaxTensorBytes = uint64_t{1} << 46;
constexpr size_t kMaxNameLength = 64;

size_t ElementBytes(v1::TensorDtype dtype) {
  switch (dtype) {
    case v1::TENSOR_DTYPE_BFLOAT16:
      return 2;
    case v1::TENSOR_DTYPE_FLOAT32:
    case v1::TENSOR_DTYPE_INT32:
      return 4;
    case v1::TENSOR_DTYPE_UINT8:
      return 1;
    default:
      return 0;
  }
}

const char* DtypeName(v1::TensorDtype dtype) {
  switch (dtype) {
    case v1::TENSOR_DTYPE_BFLOAT16:
      return "bfloat16";
    case v1::TENSOR_DTYPE_FLOAT32:
      return "float32";
    case v1::TENSOR_DTYPE_INT32:
      return "int32";
    case v1::TENSOR_DTYPE_UINT8:
      return "uint8";
    default:
      return "unknown";
  }
}

// Of a product that makes rows of the buffer.
bool IsFactor(const TensorSpec& spec, const BufferShape& shape) {
  const auto is_depth = [](int64_t size) {
    return size > 0 && size % 8 == 0 && size <= kMaxProductDepth;
  };
  if (spec.dtype != v1::TENSOR_DTYPE_BFLOAT16 || spec.shape.size() != 2) return false;
  return (spec.shape[0] <= shape.geometry.tokens && is_depth(spec.shape[1])) ||
         (is_depth(spec.shape[0]) && spec.shape[1] == shape.hidden);
}

}  // namespace

TensorSpec MakeTensorSpec(v1::TensorDtype dtype, std::vector<int64_t> shape) {
  TensorSpec spec{dtype, std::move(shape), ElementBytes(dtype)};
  PERIGEE_CHECK(spec.size_bytes > 0);
  for (const int64_t size : spec.shape) spec.size_bytes *= static_cast<size_t>(size);
  return spec;
}

v1::TensorHeader ToHeader(const TensorSpec& spec) {
  v1::TensorHeader header;
  header.set_dtype(spec.dtype);
  for (const int64_t size : spec.shape) header.add_shape(size);
  header.set_size_bytes(spec.size_bytes);
  return header;
}

std::string Describe(const TensorSpec& spec) {
  return absl::StrCat(DtypeName(spec.dtype), " [", absl::StrJoin(spec.shape, ", "), "]");
}

absl::StatusOr<TensorSpec> ParseTensorHeader(const v1::TensorHeader& header) {
  TensorSpec spec{header.dtype(), {}, ElementBytes(header.dtype())};
  if (spec.size_bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat("dtype ", static_cast<int>(header.dtype()),
                                                   " is unknown, expected bfloat16, float32, "
                                                   "int32 or uint8"));
  }
  if (header.shape_size() > kMaxDimensions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the tensor has ", header.shape_size(), " dimensions, expected at most ", kMaxDimensions));
  }
  for (const int64_t size : header.shape()) {
    if (size < 0 || static_cast<uint64_t>(size) > kMaxTensorBytes ||
        (size > 0 && spec.size_bytes > kMaxTensorBytes / static_cast<uint64_t>(size))) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a tensor of shape [", absl::StrJoin(header.shape(), ", "), "] is not possible"));
    }
    spec.shape.push_back(size);
    spec.size_bytes *= static_cast<size_t>(size);
  }
  if (header.size_bytes() != spec.size_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("size_bytes is ", header.size_bytes(),
                                                   ", expected ", spec.size_bytes, " for ",
                                                   Describe(spec)));
  }
  return spec;
}

TensorSpec RowsSpec(const BufferShape& shape) {
  return MakeTensorSpec(v1::TENSOR_DTYPE_BFLOAT16, {shape.geometry.logical_rows(), shape.hidden});
}

TensorSpec RowWeightsSpec(const BufferShape& shape) {
  return MakeTensorSpec(v1::TENSOR_DTYPE_FLOAT32, {shape.geometry.logical_rows()});
}

absl::Status CheckNamedTensor(const TensorSpec& spec, const BufferShape& shape) {
  const int64_t tokens = shape.geometry.tokens;
  const int64_t width =
      spec.dtype == v1::TENSOR_DTYPE_BFLOAT16 ? shape.hidden : shape.geometry.topk;
  if (spec.dtype != v1::TENSOR_DTYPE_UINT8 && spec.shape.size() == 2 && spec.shape[0] <= tokens &&
      spec.shape[1] == width) {
    return absl::OkStatus();
  }
  if (spec == RowsSpec(shape) || spec == RowWeightsSpec(shape) || IsFactor(spec, shape)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the tensor is ", Describe(spec), ", expected bfloat16 [n, ", shape.hidden,
                   "], int32 [n, ", shape.geometry.topk, "] or float32 [n, ", shape.geometry.topk,
                   "] with n <= ", tokens, ", rows of a shard ", Describe(RowsSpec(shape)), " or ",
                   Describe(RowWeightsSpec(shape)), ", or of a product bfloat16 [n, C] or [C, ",
                   shape.hidden, "] with C a multiple of 8 up to ", kMaxProductDepth));
}

TensorSpec WeightMatrixSpec(v1::WeightTarget::Kind kind, const BufferShape& shape) {
  const WeightsShape weights = shape.weights();
  const int64_t experts = shape.geometry.experts_per_rank();
  const int part = WeightPart(kind);
  const bool mxfp4 = weights.format == WeightFormat::kMxfp4;
  if (part >= kWeightMatrices) {
    return MakeTensorSpec(mxfp4 ? v1::TENSOR_DTYPE_UINT8 : v1::TENSOR_DTYPE_FLOAT32,
                          {experts, weights.scale_rows(part), weights.scale_columns(part)});
  }
  const bool bf16 = weights.format == WeightFormat::kBFloat16;
  return MakeTensorSpec(bf16 ? v1::TENSOR_DTYPE_BFLOAT16 : v1::TENSOR_DTYPE_UINT8,
                        {experts, weights.rows(part), weights.columns(part) / (mxfp4 ? 2 : 1)});
}

absl::Status CheckObjectName(absl::string_view what, const std::string& name) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/';
  };
  if (!name.empty() && name.size() <= kMaxNameLength &&
      std::all_of(name.begin(), name.end(), allowed)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " '", name.substr(0, kMaxNameLength), "' has ", name.size(),
                   " characters, expected 1 to ", kMaxNameLength, " letters, digits or _ - . /"));
}

}  // namespace perigee
