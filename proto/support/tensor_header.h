// The JSON header of a safetensors file: parsed strictly, checked against the bytes that follow it,
// and written. Pure; a header may be anybody's.
#ifndef PERIGEE_PROTO_SUPPORT_TENSOR_HEADER_H_
#define PERIGEE_PROTO_SUPPORT_TENSOR_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"

namespace perigee {

enum class TensorDtype {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kU16,
  kI16,
  kF16,
  kBF16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64,
};

// As in the file: "BOOL", "U8", "BF16", ...
absl::string_view DtypeName(TensorDtype dtype);
int64_t DtypeBytes(TensorDtype dtype);
// INVALID_ARGUMENT for a name that is none of them.
absl::StatusOr<TensorDtype> ParseDtype(absl::string_view name);

struct TensorInfo {
  std::string name;
  TensorDtype dtype = TensorDtype::kU8;
  std::vector<int64_t> shape;  // row major; empty: a scalar; a zero makes a tensor without elements
  int64_t offset_bytes = 0;    // from the first byte after the header
  int64_t size_bytes = 0;

  int64_t elements() const { return size_bytes / DtypeBytes(dtype); }
  // "I32 [8, 256]", for messages.
  std::string Describe() const;
};

// Bytes of a tensor; none where they do not fit 63 bits.
absl::optional<int64_t> TensorBytes(TensorDtype dtype, absl::Span<const int64_t> shape);

struct TensorHeader {
  std::vector<TensorInfo> tensors;  // by offset
  std::map<std::string, std::string> metadata;

  // Bytes of all tensors.
  int64_t data_bytes() const;
};

// INVALID_ARGUMENT, saying where and what was expected: no JSON object of that form; a name twice;
// an unknown dtype; a shape that does not fit its offsets; offsets that leave gaps or overlap.
// Whether the file is as long as the header says is for the caller to compare.
absl::StatusOr<TensorHeader> ParseTensorHeader(absl::string_view json);

// Padded with spaces to a multiple of 8 bytes.
std::string FormatTensorHeader(const TensorHeader& header);

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_TENSOR_HEADER_H_
