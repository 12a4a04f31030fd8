// Owner of a Unix file descriptor.
#ifndef PERIGEE_PROTO_LOCAL_FILE_DESCRIPTOR_H_
#define PERIGEE_PROTO_LOCAL_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace perigee {

// Closes what it owns; -1 is nothing.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() { Reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = other.Release();
    }
    return *this;
  }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // The caller owns it from now on.
  int Release() { return std::exchange(fd_, -1); }
  void Reset() {
    if (fd_ >= 0) close(Release());
  }

 private:
  int fd_ = -1;
};

}  // namespace perigee

#endif  // PERIGEE_PROTO_LOCAL_FILE_DESCRIPTOR_H_
