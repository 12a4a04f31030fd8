#include "tests/contract/rank_backends.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "kernels/common/check.h"

namespace perigee {

std::unique_ptr<Memory> MapFor(Backend& backend, const Memory& memory, PeerAccess access) {
  const int descriptor = fcntl(memory.descriptor(), F_DUPFD_CLOEXEC, 0);
  absl::StatusOr<std::unique_ptr<Memory>> mapping =
      backend.Import(descriptor, memory.size_bytes(), access);
  if (!mapping.ok()) ADD_FAILURE() << mapping.status();
  PERIGEE_CHECK(mapping.ok());
  return *std::move(mapping);
}

}  // namespace perigee
