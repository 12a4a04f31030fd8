#include "client/lib/tensor.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "kernels/common/check.h"

namespace perigee {

int64_t ElementBytes(v1::TensorDtype dtype) {
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

int64_t TensorBytes(v1::TensorDtype dtype, absl::Span<const int64_t> shape) {
  int64_t bytes = ElementBytes(dtype);
  if (bytes == 0) return -1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return -1;
  }
  return bytes;
}

std::string DescribeTensor(v1::TensorDtype dtype, absl::Span<const int64_t> shape) {
  const std::string name = v1::TensorDtype_Name(dtype);
  return absl::StrCat(absl::StripPrefix(absl::string_view(name), "TENSOR_DTYPE_"), " [",
                      absl::StrJoin(shape, ", "), "]");
}

TensorView Slice(const TensorView& tensor, int64_t begin, int64_t count) {
  PERIGEE_CHECK(!tensor.shape.empty() && begin >= 0 && count >= 0 &&
                begin + count <= tensor.shape[0]);
  TensorView slice = tensor;
  slice.shape[0] = count;
  const int64_t entry_bytes =
      TensorBytes(tensor.dtype, absl::MakeConstSpan(tensor.shape).subspan(1));
  slice.data = tensor.data.subspan(begin * entry_bytes, count * entry_bytes);
  return slice;
}

}  // namespace perigee
