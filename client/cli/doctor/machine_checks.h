// Whether memory, CPUs and limits are enough for workers.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_MACHINE_CHECKS_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_MACHINE_CHECKS_H_

#include <cstdint>
#include <vector>

#include "client/cli/doctor/finding.h"
#include "client/cli/doctor/machine_facts.h"

namespace perigee {

// memory, shm, descriptors, cpus; with cuda also locked_memory. ranks: workers that shall run here.
std::vector<Finding> CheckMachine(const MachineFacts& facts, int32_t ranks, bool cuda);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_MACHINE_CHECKS_H_
