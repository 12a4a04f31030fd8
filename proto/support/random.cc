#include "proto/support/random.h"

#include <sys/random.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"

namespace perigee {

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  size_t filled = 0;
  while (filled < count) {
    const ssize_t got = getrandom(bytes.data() + filled, count - filled, 0);
    PERIGEE_CHECK(got > 0 || errno == EINTR);
    if (got > 0) filled += static_cast<size_t>(got);
  }
  return bytes;
}

uint64_t RandomUint64() {
  const std::string bytes = RandomBytes(sizeof(uint64_t));
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

std::string Hex64(uint64_t value) { return absl::StrCat(absl::Hex(value, absl::kZeroPad16)); }

std::string NewRequestId() { return Hex64(RandomUint64()) + Hex64(RandomUint64()); }

}  // namespace perigee
