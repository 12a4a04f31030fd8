// The owner of a file descriptor: closes it when it dies. Movable; -1 owns nothing.
#ifndef PERIGEE_KERNELS_DEVICE_FILE_DESCRIPTOR_H_
#define PERIGEE_KERNELS_DEVICE_FILE_DESCRIPTOR_H_

#include <unistd.h>

namespace perigee {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_FILE_DESCRIPTOR_H_
