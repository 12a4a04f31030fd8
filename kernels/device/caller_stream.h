// Work on a stream that may belong to somebody else in this process, and words in memory by which
// such a stream meets another one or another process: it tells how far it has come, and waits until
// it is told.
//
// `stream` is a cudaStream_t (null: the legacy default stream) of `device`. Nothing here waits for
// the device but what says so. Errors as kernels/device/cuda_status.h has them. Thread-safe.
#ifndef PERIGEE_KERNELS_DEVICE_CALLER_STREAM_H_
#define PERIGEE_KERNELS_DEVICE_CALLER_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct CUstream_st;  // what cudaStream_t points to

namespace perigee {

// Addresses of the device or of the host.
absl::Status CopyOnStream(int device, CUstream_st* stream, void* to, const void* from,
                          size_t size_bytes);
// Whether all that has been submitted to it has ended.
absl::StatusOr<bool> IsStreamDone(int device, CUstream_st* stream);

// What is submitted from here on waits until `word`, in memory of the device, is at least `value`,
// however long that takes. The waiting occupies no SM.
absl::Status WaitForWord(int device, CUstream_st* stream, const uint64_t* word, uint64_t value);

// When all submitted before has ended: the word at this address of the device is `value`. Where the
// stream is captured, every time the graph runs.
absl::Status WriteWordOnStream(int device, CUstream_st* stream, uint64_t* word, uint64_t value);

// Host memory of this process, shared with others or not, that its device sees. Unregistered by its
// destructor, which may wait for the device; the memory outlives it.
class RegisteredMemory {
 public:
  // Page aligned.
  static absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(int device, std::byte* memory,
                                                                    size_t size_bytes);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  // When all submitted before has ended: `word`, which lies in the memory, is `value`.
  absl::Status WriteOnStream(CUstream_st* stream, const uint64_t* word, uint64_t value) const;
  // What is submitted from here on waits until `word` is at least `value`, however long that takes.
  absl::Status WaitOnStream(CUstream_st* stream, const uint64_t* word, uint64_t value) const;

 private:
  RegisteredMemory(int device, std::byte* memory, uint64_t device_address)
      : device_(device), memory_(memory), device_address_(device_address) {}
  uint64_t AddressOf(const uint64_t* word) const;

  const int device_;
  std::byte* const memory_;
  const uint64_t device_address_;
};

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_CALLER_STREAM_H_
