// Whether the kernel has what workers need.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_KERNEL_CHECKS_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_KERNEL_CHECKS_H_

#include <vector>

#include "client/cli/doctor/finding.h"
#include "client/cli/doctor/kernel_facts.h"

namespace perigee {

// kernel, memfd, futex, pidfd, descriptor_passing, proc.
std::vector<Finding> CheckKernel(const KernelFacts& facts);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_KERNEL_CHECKS_H_
