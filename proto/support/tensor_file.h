// safetensors files: named tensors of raw little-endian elements behind a JSON header.
//
//   8 bytes    N, length of the header in bytes, little endian
//   N bytes    {"name": {"dtype": "I32", "shape": [2, 3], "data_offsets": [begin, end]}, ...,
//              "__metadata__": {"key": "value", ...}}, padded with spaces
//   the rest   the tensors; offsets count from here and cover it without gaps or overlaps
#ifndef PERIGEE_PROTO_SUPPORT_TENSOR_FILE_H_
#define PERIGEE_PROTO_SUPPORT_TENSOR_FILE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/support/tensor_header.h"

namespace perigee {

// A read-only view of a file, mapped into memory. Immutable after Open, so thread-safe. Spans live
// as long as the TensorFile. The caller vouches that nobody cuts the file short meanwhile: reading
// past its end would kill the process.
class TensorFile {
 public:
  // Checks everything about the file but the elements. NOT_FOUND or PERMISSION_DENIED: it cannot be
  // opened. INVALID_ARGUMENT, naming the path and what was expected: it is no such file, or cut
  // short.
  static absl::StatusOr<TensorFile> Open(const std::string& path);

  TensorFile(TensorFile&& other) noexcept;
  TensorFile& operator=(TensorFile&& other) noexcept;
  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;
  ~TensorFile();

  const std::string& path() const { return path_; }
  // By offset.
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Null if there is none of that name.
  const TensorInfo* Find(absl::string_view name) const;
  // NOT_FOUND, naming the path and the tensors there are.
  absl::StatusOr<const TensorInfo*> Get(absl::string_view name) const;
  // The elements' bytes. They need not be aligned to the element.
  absl::Span<const std::byte> data(const TensorInfo& tensor) const;
  // Any integer tensor. INVALID_ARGUMENT: another dtype, or a value that does not fit (the message
  // names its place).
  absl::StatusOr<std::vector<int32_t>> ReadInt32(const TensorInfo& tensor) const;
  absl::StatusOr<std::vector<int64_t>> ReadInt64(const TensorInfo& tensor) const;

 private:
  TensorFile() = default;
  absl::Status ReadHeader();

  std::string path_;
  const std::byte* mapping_ = nullptr;  // owned
  size_t mapping_bytes_ = 0;
  size_t data_offset_ = 0;
  TensorHeader header_;
};

// A tensor to write; borrows the bytes.
struct TensorSource {
  std::string name;
  TensorDtype dtype = TensorDtype::kU8;
  std::vector<int64_t> shape;
  absl::Span<const std::byte> data;  // product of shape times DtypeBytes
};

// Writes a temporary file beside `path` and renames it: whoever opens `path` sees the old file or
// the whole new one. INVALID_ARGUMENT: a name twice, empty or "__metadata__", or data that is not
// as long as the shape says. Else the code of the system call that failed, with the path.
absl::Status WriteTensorFile(const std::string& path, absl::Span<const TensorSource> tensors,
                             const std::map<std::string, std::string>& metadata);

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_TENSOR_FILE_H_
