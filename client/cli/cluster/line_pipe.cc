#include "client/cli/cluster/line_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace perigee {

absl::StatusOr<Pipe> NewPipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("pipe: ", std::strerror(errno)));
  }
  return Pipe{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

LineReader::LineReader(FileDescriptor fd) : fd_(std::move(fd)) {
  fcntl(fd_.get(), F_SETFL, O_NONBLOCK);
}

std::vector<std::string> LineReader::Read() {
  char buffer[4096];
  while (fd_.valid()) {
    const ssize_t size = read(fd_.get(), buffer, sizeof(buffer));
    if (size > 0) {
      pending_.append(buffer, static_cast<size_t>(size));
    } else if (size < 0 && errno == EINTR) {
      continue;
    } else if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      break;
    } else {
      fd_.Reset();
    }
  }
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end; (end = pending_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(pending_.substr(begin, end - begin));
  }
  pending_.erase(0, begin);
  return lines;
}

}  // namespace perigee
