#include "proto/support/tensor_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/support/json_string.h"

namespace perigee {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

absl::Status Malformed(const std::string& path, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

uint64_t ReadLength(const std::byte* bytes) {
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<uint64_t>(bytes[i]);
  }
  return length;
}

template <typename To, typename From>
absl::StatusOr<std::vector<To>> Convert(const TensorInfo& tensor,
                                        absl::Span<const std::byte> data) {
  std::vector<To> values(tensor.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    From value;
    std::memcpy(&value, data.data() + i * sizeof(From), sizeof(From));
    if (!std::in_range<To>(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", JsonQuote(tensor.name), ": element ", i, " is ", value,
                       ", expected a value of ", 8 * sizeof(To), " bits"));
    }
    values[i] = static_cast<To>(value);  // NOLINT(bugprone-signed-char-misuse): a number, no char
  }
  return values;
}

template <typename To>
absl::StatusOr<std::vector<To>> ReadIntegers(const TensorInfo& tensor,
                                             absl::Span<const std::byte> data) {
  switch (tensor.dtype) {
    case TensorDtype::kU8:
      return Convert<To, uint8_t>(tensor, data);
    case TensorDtype::kI8:
      return Convert<To, int8_t>(tensor, data);
    case TensorDtype::kU16:
      return Convert<To, uint16_t>(tensor, data);
    case TensorDtype::kI16:
      return Convert<To, int16_t>(tensor, data);
    case TensorDtype::kU32:
      return Convert<To, uint32_t>(tensor, data);
    case TensorDtype::kI32:
      return Convert<To, int32_t>(tensor, data);
    case TensorDtype::kU64:
      return Convert<To, uint64_t>(tensor, data);
    case TensorDtype::kI64:
      return Convert<To, int64_t>(tensor, data);
    default:
      return absl::InvalidArgumentError(absl::StrCat("tensor ", JsonQuote(tensor.name), " is ",
                                                     tensor.Describe(), ", expected integers"));
  }
}

absl::StatusOr<TensorHeader> MakeHeader(absl::Span<const TensorSource> tensors,
                                        const std::map<std::string, std::string>& metadata) {
  TensorHeader header;
  header.metadata = metadata;
  std::set<std::string> names;
  int64_t offset = 0;
  for (const TensorSource& tensor : tensors) {
    if (tensor.name.empty() || tensor.name == "__metadata__" || !names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor name ", JsonQuote(tensor.name),
                       ", expected a name of its own, neither empty nor \"__metadata__\""));
    }
    const TensorInfo info{tensor.name, tensor.dtype, tensor.shape, offset,
                          static_cast<int64_t>(tensor.data.size())};
    if (TensorBytes(tensor.dtype, tensor.shape) != info.size_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", JsonQuote(tensor.name), ": ",
                                                     info.size_bytes, " bytes do not make ",
                                                     info.Describe()));
    }
    offset += info.size_bytes;
    header.tensors.push_back(info);
  }
  return header;
}

absl::Status WriteAll(int fd, const void* data, size_t size_bytes) {
  const char* next = static_cast<const char*>(data);
  while (size_bytes > 0) {
    const ssize_t written = write(fd, next, size_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, "write");
    next += written;
    size_bytes -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status WriteContents(int fd, const std::string& header,
                           absl::Span<const TensorSource> tensors) {
  std::byte length[kLengthBytes];
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<std::byte>(header.size() >> (8 * i) & 0xff);
  }
  absl::Status status = WriteAll(fd, length, kLengthBytes);
  if (status.ok()) status = WriteAll(fd, header.data(), header.size());
  for (const TensorSource& tensor : tensors) {
    if (status.ok()) status = WriteAll(fd, tensor.data.data(), tensor.data.size());
  }
  if (status.ok() && fsync(fd) != 0) status = absl::ErrnoToStatus(errno, "fsync");
  return status;
}

// A new file beside `path`, under a name that nobody else takes.
absl::StatusOr<std::pair<int, std::string>> OpenTemporary(const std::string& path) {
  static std::atomic<int> counter = 0;
  while (true) {
    std::string temporary = absl::StrCat(path, ".tmp-", getpid(), "-", counter++);
    const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) return std::pair<int, std::string>(fd, std::move(temporary));
    if (errno != EEXIST) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
}

}  // namespace

TensorFile::TensorFile(TensorFile&& other) noexcept { *this = std::move(other); }

TensorFile& TensorFile::operator=(TensorFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapping_bytes_, other.mapping_bytes_);
  std::swap(data_offset_, other.data_offset_);
  std::swap(header_, other.header_);
  return *this;
}

TensorFile::~TensorFile() {
  if (mapping_ != nullptr) munmap(const_cast<std::byte*>(mapping_), mapping_bytes_);
}

absl::StatusOr<TensorFile> TensorFile::Open(const std::string& path) {
  // Non-blocking: opening a pipe must not wait for its writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat ", path));
  if (!S_ISREG(info.st_mode)) return Malformed(path, "not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size < kLengthBytes) {
    return Malformed(
        path, absl::StrCat("cut short: ", size, " bytes, expected 8 and a header (safetensors)"));
  }
  void* mapping = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (mapping == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  TensorFile file;
  file.path_ = path;
  file.mapping_ = static_cast<const std::byte*>(mapping);
  file.mapping_bytes_ = size;
  if (absl::Status status = file.ReadHeader(); !status.ok()) return status;
  return file;
}

absl::Status TensorFile::ReadHeader() {
  const uint64_t header_bytes = ReadLength(mapping_);
  if (header_bytes > kMaxHeaderBytes) {
    return Malformed(path_, absl::StrCat("no safetensors file: header length ", header_bytes,
                                         ", expected at most ", kMaxHeaderBytes));
  }
  data_offset_ = kLengthBytes + header_bytes;
  if (mapping_bytes_ < data_offset_) {
    return Malformed(path_, absl::StrCat("cut short: ", mapping_bytes_, " bytes, expected ",
                                         data_offset_, " or more"));
  }
  absl::StatusOr<TensorHeader> header = ParseTensorHeader(
      absl::string_view(reinterpret_cast<const char*>(mapping_) + kLengthBytes, header_bytes));
  if (!header.ok()) {
    return Malformed(path_, absl::StrCat("malformed header: ", header.status().message()));
  }
  header_ = *std::move(header);
  const uint64_t expected = data_offset_ + static_cast<uint64_t>(header_.data_bytes());
  if (mapping_bytes_ != expected) {
    return Malformed(path_, absl::StrCat(mapping_bytes_ < expected ? "cut short: " : "too long: ",
                                         mapping_bytes_, " bytes, expected ", expected));
  }
  return absl::OkStatus();
}

const TensorInfo* TensorFile::Find(absl::string_view name) const {
  for (const TensorInfo& tensor : header_.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

absl::StatusOr<const TensorInfo*> TensorFile::Get(absl::string_view name) const {
  if (const TensorInfo* tensor = Find(name)) return tensor;
  constexpr size_t kShown = 8;
  std::vector<std::string> names;
  for (const TensorInfo& tensor : header_.tensors) {
    if (names.size() == kShown) names.push_back("...");
    if (names.size() > kShown) break;
    names.push_back(tensor.name.substr(0, 64));
  }
  return absl::NotFoundError(absl::StrCat(path_, ": no tensor ", JsonQuote(name), "; it has ",
                                          names.empty() ? "none" : absl::StrJoin(names, ", ")));
}

absl::Span<const std::byte> TensorFile::data(const TensorInfo& tensor) const {
  return {mapping_ + data_offset_ + tensor.offset_bytes, static_cast<size_t>(tensor.size_bytes)};
}

absl::StatusOr<std::vector<int32_t>> TensorFile::ReadInt32(const TensorInfo& tensor) const {
  return ReadIntegers<int32_t>(tensor, data(tensor));
}

absl::StatusOr<std::vector<int64_t>> TensorFile::ReadInt64(const TensorInfo& tensor) const {
  return ReadIntegers<int64_t>(tensor, data(tensor));
}

absl::Status WriteTensorFile(const std::string& path, absl::Span<const TensorSource> tensors,
                             const std::map<std::string, std::string>& metadata) {
  absl::StatusOr<TensorHeader> header = MakeHeader(tensors, metadata);
  if (!header.ok()) return header.status();
  absl::StatusOr<std::pair<int, std::string>> temporary = OpenTemporary(path);
  if (!temporary.ok()) return temporary.status();
  const auto& [fd, name] = *temporary;
  absl::Status status = WriteContents(fd, FormatTensorHeader(*header), tensors);
  if (close(fd) != 0 && status.ok()) status = absl::ErrnoToStatus(errno, "close");
  if (status.ok() && rename(name.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, "rename");
  }
  if (status.ok()) return status;
  unlink(name.c_str());
  return absl::Status(status.code(), absl::StrCat("cannot write ", path, ": ", status.message()));
}

}  // namespace perigee
