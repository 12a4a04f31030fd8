#include "kernels/host/memfd_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/host/available_memory.h"

namespace perigee {
namespace {

// What an importer relies on: the memory cannot go away under its mapping.
constexpr int kLengthSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int kWriteSeals = F_SEAL_FUTURE_WRITE | F_SEAL_WRITE;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

class MappedMemory final : public Memory {
 public:
  MappedMemory(std::byte* data, size_t size_bytes, Descriptor descriptor)
      : data_(data), size_bytes_(size_bytes), descriptor_(std::move(descriptor)) {}
  ~MappedMemory() override { munmap(data_, size_bytes_); }

  std::byte* data() const override { return data_; }
  size_t size_bytes() const override { return size_bytes_; }
  int descriptor() const override { return descriptor_.get(); }

 private:
  std::byte* const data_;
  const size_t size_bytes_;
  const Descriptor descriptor_;
};

absl::Status Exhausted(size_t size_bytes, absl::string_view why) {
  return absl::ResourceExhaustedError(absl::StrCat("no memory for ", size_bytes, " bytes: ", why));
}

absl::Status SystemError(absl::string_view what, size_t size_bytes) {
  const int error = errno;
  if (error == ENOMEM || error == ENOSPC || error == EFBIG) {
    return Exhausted(size_bytes, std::strerror(error));
  }
  return absl::InternalError(
      absl::StrCat(what, " of ", size_bytes, " bytes: ", std::strerror(error)));
}

// The kernel would grant more than there is and kill a process later. Little memory is not worth
// the look at half a dozen files.
absl::Status CheckAvailable(size_t size_bytes) {
  constexpr size_t kLittle = size_t{1} << 20;
  if (size_bytes == 0) return absl::InvalidArgumentError("cannot allocate 0 bytes");
  if (size_bytes <= kLittle) return absl::OkStatus();
  const HostMemory memory = ReadHostMemory();
  if (size_bytes <= memory.available_bytes) return absl::OkStatus();
  return Exhausted(size_bytes, absl::StrCat(memory.available_bytes, " bytes are available"));
}

absl::StatusOr<std::unique_ptr<Memory>> Map(Descriptor descriptor, size_t size_bytes,
                                            int protection, int flags) {
  void* data = mmap(nullptr, size_bytes, protection, flags, descriptor.get(), 0);
  if (data == MAP_FAILED) return SystemError("mmap", size_bytes);
  return std::make_unique<MappedMemory>(static_cast<std::byte*>(data), size_bytes,
                                        std::move(descriptor));
}

absl::Status AllocatePages(int fd, size_t size_bytes) {
  int error = 0;
  do {
    error = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes));
  } while (error == EINTR);
  errno = error;
  return error == 0 ? absl::OkStatus() : SystemError("posix_fallocate", size_bytes);
}

absl::Status CheckImport(int fd, size_t size_bytes, PeerAccess access) {
  // The seals first: only a sealed length stays what it is.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kLengthSeals) != kLengthSeals) {
    return absl::InvalidArgumentError(
        absl::StrCat("descriptor ", fd, " is no memory that is sealed against a change of its size",
                     seals < 0 ? absl::StrCat(" (", std::strerror(errno), ")") : ""));
  }
  struct stat status = {};
  if (size_bytes == 0 || fstat(fd, &status) != 0 ||
      static_cast<uint64_t>(status.st_size) != size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("imported memory has ", status.st_size, " bytes, expected ", size_bytes));
  }
  if (access == PeerAccess::kReadWrite && (seals & kWriteSeals) != 0) {
    return absl::InvalidArgumentError("imported memory is read only, expected writable memory");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Memory>> AllocateMemfd(size_t size_bytes, PeerAccess access) {
  if (absl::Status status = CheckAvailable(size_bytes); !status.ok()) return status;
  Descriptor fd(memfd_create("perigee", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  if (fd.get() < 0) return SystemError("memfd_create", size_bytes);
  if (absl::Status status = AllocatePages(fd.get(), size_bytes); !status.ok()) return status;
  const int raw = fd.get();
  absl::StatusOr<std::unique_ptr<Memory>> memory =
      Map(std::move(fd), size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE);
  if (!memory.ok()) return memory;
  // After the mapping: FUTURE_WRITE leaves those writable that exist.
  const int access_seals = access == PeerAccess::kReadOnly ? F_SEAL_FUTURE_WRITE : 0;
  if (fcntl(raw, F_ADD_SEALS, kLengthSeals | access_seals | F_SEAL_SEAL) != 0) {
    return SystemError("sealing", size_bytes);
  }
  return memory;
}

absl::StatusOr<std::unique_ptr<Memory>> AllocateAnonymous(size_t size_bytes) {
  if (absl::Status status = CheckAvailable(size_bytes); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Memory>> memory =
      Map(Descriptor(-1), size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  if (!memory.ok()) return memory;
#ifdef MADV_POPULATE_WRITE
  // Older kernels answer EINVAL and allocate on first touch.
  if (madvise((*memory)->data(), size_bytes, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    return SystemError("madvise", size_bytes);
  }
#endif
  return memory;
}

absl::StatusOr<std::unique_ptr<Memory>> ImportMemfd(int descriptor, size_t size_bytes,
                                                    PeerAccess access) {
  Descriptor fd(descriptor);
  if (absl::Status status = CheckImport(fd.get(), size_bytes, access); !status.ok()) return status;
  const int protection = access == PeerAccess::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  // Page tables are filled now: the first operation would pay for them one fault at a time.
  void* data = mmap(nullptr, size_bytes, protection, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (data == MAP_FAILED) return SystemError("mmap", size_bytes);
  // The mapping keeps the memory; the descriptor is closed, since a large group imports more of
  // them than a process may have open.
  return std::make_unique<MappedMemory>(static_cast<std::byte*>(data), size_bytes, Descriptor(-1));
}

}  // namespace perigee
