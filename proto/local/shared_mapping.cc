#include "proto/local/shared_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace perigee {

absl::StatusOr<SharedMapping> SharedMapping::Map(FileDescriptor descriptor, size_t size_bytes,
                                                 bool read_only) {
  constexpr int kLengthSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kLengthSeals) != kLengthSeals) {
    return absl::InvalidArgumentError(
        "the descriptor is no memory that is sealed against a change of its size");
  }
  struct stat found = {};
  if (fstat(descriptor.get(), &found) != 0 || size_bytes == 0 ||
      static_cast<uint64_t>(found.st_size) != size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory has ", found.st_size, " bytes, expected ", size_bytes));
  }
  const int access = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = mmap(nullptr, size_bytes, access, MAP_SHARED | MAP_POPULATE, descriptor.get(), 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mmap of ", size_bytes, " bytes: ", std::strerror(errno)));
  }
  return SharedMapping(absl::MakeSpan(static_cast<std::byte*>(data), size_bytes));
}

absl::Status SharedMapping::MakePrivate() {
  if (memory_.empty()) return absl::OkStatus();
  constexpr int kInPlace = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  if (mmap(memory_.data(), memory_.size(), PROT_READ | PROT_WRITE, kInPlace, -1, 0) != MAP_FAILED) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("mmap of ", memory_.size(), " bytes in place: ", std::strerror(errno)));
}

SharedMapping::~SharedMapping() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

}  // namespace perigee
