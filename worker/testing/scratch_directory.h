// A private directory for sockets, short enough for their paths, gone with its owner.
#ifndef PERIGEE_WORKER_TESTING_SCRATCH_DIRECTORY_H_
#define PERIGEE_WORKER_TESTING_SCRATCH_DIRECTORY_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include "kernels/common/check.h"

namespace perigee {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    // Not the test's own temporary folder: a sandbox's path is longer than a socket's may be.
    char name[] = "/tmp/perigee-test-XXXXXX";
    PERIGEE_CHECK(mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_TESTING_SCRATCH_DIRECTORY_H_
