#include "kernels/device/handle_kinds.h"

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

absl::Status Probe(int device, HandleKind kind) {
  return DeviceMemory::AllocateShared(device, 1, kind).status();
}

std::string Describe(const absl::Status& status) {
  return status.ok() ? std::string("ok") : std::string(status.message());
}

}  // namespace

HandleKinds ProbeHandleKinds(int device) {
  return HandleKinds{Probe(device, HandleKind::kPosixFd), Probe(device, HandleKind::kFabric)};
}

std::string DescribeHandleKinds(const HandleKinds& kinds) {
  return absl::StrCat(HandleKindName(HandleKind::kPosixFd), ": ", Describe(kinds.posix_fd), "; ",
                      HandleKindName(HandleKind::kFabric), ": ", Describe(kinds.fabric));
}

absl::StatusOr<HandleKind> ResolveHandleKind(absl::string_view option, const HandleKinds& kinds) {
  HandleKind kind = HandleKind::kPosixFd;
  if (option == HandleKindName(HandleKind::kFabric)) {
    kind = HandleKind::kFabric;
  } else if (option != "auto" && option != HandleKindName(HandleKind::kPosixFd)) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown kind of memory handle \"", option, "\": auto, fd or fabric"));
  }
  const absl::Status& refusal = kind == HandleKind::kFabric ? kinds.fabric : kinds.posix_fd;
  if (refusal.ok()) return kind;
  return absl::Status(refusal.code(),
                      absl::StrCat("this machine refuses memory handles of kind ",
                                   HandleKindName(kind), ": ", std::string(refusal.message())));
}

}  // namespace perigee
