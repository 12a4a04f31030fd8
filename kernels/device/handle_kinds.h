// Which kinds of shareable memory this machine grants. Found by making, exporting and freeing one
// small allocation of each kind: the device attribute says yes to fabric handles on machines where
// cuMemCreate then answers "operation not permitted" (no IMEX channel).
#ifndef PERIGEE_KERNELS_DEVICE_HANDLE_KINDS_H_
#define PERIGEE_KERNELS_DEVICE_HANDLE_KINDS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/device/device_memory.h"

namespace perigee {

// OK where a kind works, else why it does not.
struct HandleKinds {
  absl::Status posix_fd;
  absl::Status fabric;
};

// Thread-safe; takes a few milliseconds after the device's context is there.
HandleKinds ProbeHandleKinds(int device);

// "fd: ok; fabric: <why not>", for people.
std::string DescribeHandleKinds(const HandleKinds& kinds);

// Resolves the option auto | fd | fabric. auto is fd: within one host it works wherever shared
// device memory works at all. INVALID_ARGUMENT for another word; otherwise, where the machine
// refuses the kind, its error, naming the kind.
absl::StatusOr<HandleKind> ResolveHandleKind(absl::string_view option, const HandleKinds& kinds);

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_HANDLE_KINDS_H_
