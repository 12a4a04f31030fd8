// What becomes of a command that a worker's stream took and that was not answered when the stream
// broke. Pure.
#ifndef PERIGEE_SERVER_GROUPS_LOST_COMMAND_H_
#define PERIGEE_SERVER_GROUPS_LOST_COMMAND_H_

#include <string>

#include "proto/v1/command.pb.h"

namespace perigee {

inline constexpr char kReasonCommandLost[] = "COMMAND_LOST";

// The command's field in WorkerCommand: "execute_program".
std::string CommandName(const v1::WorkerCommand& command);
// Stands for the answer: UNAVAILABLE, COMMAND_LOST. `command` is its name.
v1::CommandResult LostCommandResult(const std::string& command);

}  // namespace perigee

#endif  // PERIGEE_SERVER_GROUPS_LOST_COMMAND_H_
