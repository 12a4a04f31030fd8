// How device memory travels to another process.
#ifndef PERIGEE_KERNELS_DEVICE_HANDLE_KIND_H_
#define PERIGEE_KERNELS_DEVICE_HANDLE_KIND_H_

namespace perigee {

//   kPosixFd  the driver's own descriptor; within one host
//   kFabric   64 bytes that every node of an NVLink domain can import, where the machine permits
//   it.
//             A sealed memfd holds them, so that one exchange of descriptors carries both kinds.
enum class HandleKind { kPosixFd, kFabric };

// As the option says it: "fd" and "fabric".
inline const char* HandleKindName(HandleKind kind) {
  return kind == HandleKind::kPosixFd ? "fd" : "fabric";
}

}  // namespace perigee

#endif  // PERIGEE_KERNELS_DEVICE_HANDLE_KIND_H_
