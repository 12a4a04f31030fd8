#include "tests/device/link_launch.h"

namespace perigee {
namespace {

constexpr int kNotSupported = 801;  // cudaErrorNotSupported

}  // namespace

int LaunchLinkCopy(CUstream_st*, int, std::byte*, const std::byte*, int64_t) {
  return kNotSupported;
}
int LaunchLinkBulkCopy(CUstream_st*, int, std::byte*, const std::byte*, int64_t) {
  return kNotSupported;
}
int LaunchLinkFill(CUstream_st*, std::byte*, int64_t, uint64_t) { return kNotSupported; }
int LaunchLinkCompare(CUstream_st*, const std::byte*, int64_t, uint64_t, std::byte*) {
  return kNotSupported;
}

}  // namespace perigee
