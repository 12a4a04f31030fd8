#include "server/groups/lost_command.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace perigee {

std::string CommandName(const v1::WorkerCommand& command) {
  const auto* oneof = v1::WorkerCommand::descriptor()->FindOneofByName("command");
  const auto* field = command.GetReflection()->GetOneofFieldDescriptor(command, oneof);
  return field == nullptr ? "nothing" : field->name();
}

v1::CommandResult LostCommandResult(const std::string& command) {
  v1::CommandResult result;
  result.mutable_status()->set_code(static_cast<int32_t>(absl::StatusCode::kUnavailable));
  result.mutable_status()->set_reason(kReasonCommandLost);
  result.mutable_status()->set_message(
      absl::StrCat("its command stream broke before it answered ", command));
  return result;
}

}  // namespace perigee
