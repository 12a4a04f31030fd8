// Memory of the host backend: memfd memory that processes share by passing its descriptor, and
// private memory.
//
// A memfd's length is sealed before anybody else can have its descriptor: a peer that shortened one
// would kill every process that touches what is gone (SIGBUS). Its pages are allocated at once, for
// the same reason: too little memory is an error here and not a signal later.
#ifndef PERIGEE_KERNELS_HOST_MEMFD_MEMORY_H_
#define PERIGEE_KERNELS_HOST_MEMFD_MEMORY_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace perigee {

// Zeroed. kReadOnly: peers can map it for reading only; this process's own mapping can write.
// INVALID_ARGUMENT for 0 bytes; RESOURCE_EXHAUSTED, naming the bytes needed and available.
absl::StatusOr<std::unique_ptr<Memory>> AllocateMemfd(size_t size_bytes, PeerAccess access);

// Zeroed; descriptor() is -1. Errors as AllocateMemfd.
absl::StatusOr<std::unique_ptr<Memory>> AllocateAnonymous(size_t size_bytes);

// Maps memory that AllocateMemfd of another process (or this one) made. Takes ownership of
// `descriptor`, also on failure; descriptor() of the result is -1. INVALID_ARGUMENT, naming what
// was found and expected, unless it is a sealed memfd of exactly size_bytes, writable where
// kReadWrite is asked for.
absl::StatusOr<std::unique_ptr<Memory>> ImportMemfd(int descriptor, size_t size_bytes,
                                                    PeerAccess access);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_HOST_MEMFD_MEMORY_H_
