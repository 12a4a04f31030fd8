// The owner of a file descriptor: closes it when it dies. Movable; -1 owns nothing.
#ifndef PERIGEE_KERNELS_DEVICE_EXPORTED_DESCRIPTOR_H_
#define PERIGEE_KERNELS_DEVICE_EXPORTED_DESCRIPTOR_H_

#include <unistd.h>

namespace perigee {

class ExportedDescriptor {
 public:
  explicit ExportedDescriptor(int fd = -1) : fd_(fd) {}
  ExportedDescriptor(ExportedDescriptor&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  ExportedDescriptor(const ExportedDescriptor&) = delete;
  ExportedDescriptor& operator=(const ExportedDescriptor&) = delete;
  ExportedDescriptor& operator=(ExportedDescriptor&&) = delete;
  ~ExportedDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_EXPORTED_DESCRIPTOR_H_
