#include "client/cli/doctor/kernel_checks.h"

#include "absl/strings/str_cat.h"

namespace perigee {
namespace {

Finding CheckFeature(const char* name, const absl::Status& tried, const char* works,
                     const char* expected, const char* remedy,
                     FindingState otherwise = FindingState::kFail) {
  return Judge(tried.ok(), otherwise,
               {.name = name,
                .found = tried.ok() ? works : std::string(tried.message()),
                .expected = expected,
                .remedy = remedy});
}

}  // namespace

std::vector<Finding> CheckKernel(const KernelFacts& facts) {
  return {
      {.name = "kernel", .found = facts.release, .expected = "the features below, tried"},
      CheckFeature("memfd", facts.memfd, "sealed shared memory works",
                   "memfd_create with F_SEAL_FUTURE_WRITE",
                   "run a kernel of 5.1 or later, or allow memfd_create and fcntl in the "
                   "container's seccomp profile (to try: --security-opt seccomp=unconfined)"),
      CheckFeature("futex", facts.futex, "a process wakes another through shared memory",
                   "FUTEX_WAIT and FUTEX_WAKE across processes",
                   "allow the system call futex in the container's seccomp profile"),
      CheckFeature("pidfd", facts.pidfd, "the end of a process is seen on a descriptor",
                   "pidfd_open",
                   "run a kernel of 5.3 or later, or allow pidfd_open in the container's seccomp "
                   "profile; without it `perigee up` does not await workers whose supervisor died",
                   FindingState::kWarn),
      CheckFeature("descriptor_passing", facts.descriptor_passing,
                   "SOCK_SEQPACKET tells the peer's user and carries descriptors",
                   "SO_PEERCRED and SCM_RIGHTS over SOCK_SEQPACKET",
                   "allow Unix sockets in the container's seccomp profile or security module"),
      CheckFeature("proc", facts.proc, "/proc is mounted and readable",
                   "/proc/self/exe, /proc/meminfo, /proc/cpuinfo, /proc/self/cgroup",
                   "mount it: mount -t proc proc /proc"),
  };
}

}  // namespace perigee
