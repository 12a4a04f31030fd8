// A tensor as it lies in memory here before it is written to a worker or after it was read.
#ifndef PERIGEE_CLIENT_LIB_TENSOR_H_
#define PERIGEE_CLIENT_LIB_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/v1/worker.pb.h"

namespace perigee {

// Borrows the bytes: row-major, little endian.
struct TensorView {
  v1::TensorDtype dtype = v1::TENSOR_DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  absl::Span<const std::byte> data;
};

// Owns the bytes.
struct Tensor {
  v1::TensorDtype dtype = v1::TENSOR_DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;

  TensorView view() const { return {dtype, shape, data}; }
};

// 0 where the dtype is not known.
int64_t ElementBytes(v1::TensorDtype dtype);
// Bytes of a tensor of this kind; -1 where the dtype is not known, a size negative, or the product
// does not fit.
int64_t TensorBytes(v1::TensorDtype dtype, absl::Span<const int64_t> shape);
// "BFLOAT16 [8, 256]", for messages.
std::string DescribeTensor(v1::TensorDtype dtype, absl::Span<const int64_t> shape);

// Entries [begin, begin + count) of the first dimension. They must be there (checked).
TensorView Slice(const TensorView& tensor, int64_t begin, int64_t count);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_TENSOR_H_
