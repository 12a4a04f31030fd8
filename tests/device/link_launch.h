// Launches of the copies that link_bench measures, and of what fills and checks their memory.
#ifndef PERIGEE_TESTS_DEVICE_LINK_LAUNCH_H_
#define PERIGEE_TESTS_DEVICE_LINK_LAUNCH_H_

#include <cstddef>
#include <cstdint>

struct CUstream_st;

namespace perigee {

// All return 0 or a cudaError_t, and are to be called with the stream's device current. Sizes are
// multiples of 16 bytes.

// By the threads of `blocks` blocks: loads, then stores.
int LaunchLinkCopy(CUstream_st* stream, int blocks, std::byte* to, const std::byte* from,
                   int64_t bytes);
// By bulk copies into shared memory and out of it, one thread a block.
int LaunchLinkBulkCopy(CUstream_st* stream, int blocks, std::byte* to, const std::byte* from,
                       int64_t bytes);
// Random words, by the seed.
int LaunchLinkFill(CUstream_st* stream, std::byte* to, int64_t bytes, uint64_t seed);
// Adds the number of 8-byte words that are not those of the seed to *differing on the device.
int LaunchLinkCompare(CUstream_st* stream, const std::byte* data, int64_t bytes, uint64_t seed,
                      std::byte* differing);

}  // namespace perigee

#endif  // PERIGEE_TESTS_DEVICE_LINK_LAUNCH_H_
