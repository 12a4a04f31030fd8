// `perigee doctor`: whether workers can run on this machine, and what to do where they cannot.
#ifndef PERIGEE_CLIENT_CLI_DOCTOR_DOCTOR_COMMAND_H_
#define PERIGEE_CLIENT_CLI_DOCTOR_DOCTOR_COMMAND_H_

#include "client/cli/command.h"

namespace perigee {

extern const Command kDoctorCommand;

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_DOCTOR_DOCTOR_COMMAND_H_
