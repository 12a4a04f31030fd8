// Which of the kernel's features that Perigee uses work here, each found by using it: a version
// number says nothing of a container's seccomp profile.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_KERNEL_FACTS_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_KERNEL_FACTS_H_

#include <string>

#include "absl/status/status.h"

namespace perigee {

// OK where it works, else what failed.
struct KernelFacts {
  std::string release;              // "Linux 6.1.0-13-amd64"
  absl::Status memfd;               // shared memory without a name, its length and access sealed
  absl::Status futex;               // a process sleeps on a shared word until another wakes it
  absl::Status pidfd;               // the end of a process is seen on a descriptor of it
  absl::Status descriptor_passing;  // SOCK_SEQPACKET: who the peer is, and a descriptor sent
  absl::Status proc;                // the files below /proc that are read
};

// Forks: call it while the process has one thread. Takes milliseconds, a second where something is
// broken.
KernelFacts GatherKernelFacts();

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_KERNEL_FACTS_H_
