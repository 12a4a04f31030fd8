// PERIGEE_CHECK: a broken invariant of our own code. Input and environment get an absl::Status
// instead; after a failed check the process says where and aborts.
#ifndef PERIGEE_KERNELS_COMMON_CHECK_H_
#define PERIGEE_KERNELS_COMMON_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace perigee::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace perigee::internal

#define PERIGEE_CHECK(condition) \
  (static_cast<bool>(condition)  \
       ? static_cast<void>(0)    \
       : ::perigee::internal::CheckFailed(__FILE__, __LINE__, #condition))

#endif  // PERIGEE_KERNELS_COMMON_CHECK_H_
