#include "worker/host_id.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"

namespace perigee {

std::string HostId() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) return "localhost";
  std::string id = absl::AsciiStrToLower(name);
  id.resize(std::min<size_t>(id.size(), 63));
  for (char& c : id) {
    if (!absl::ascii_isalnum(c)) c = '-';
  }
  return id.empty() || id[0] == '-' ? "localhost" : id;
}

}  // namespace perigee
