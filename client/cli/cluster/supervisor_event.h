// What a supervisor tells the process that started it: one line each.
#ifndef PERIGEE_CLIENT_CLI_CLUSTER_SUPERVISOR_EVENT_H_
#define PERIGEE_CLIENT_CLI_CLUSTER_SUPERVISOR_EVENT_H_

#include <sys/types.h>

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace perigee {

struct SupervisorEvent {
  enum class Kind {
    kDirectory,    // text: the directory it has made
    kCoordinator,  // serves; address, pid
    kWorker,       // name is registered, for the first time or again; address, pid
    kReady,        // all workers are registered for the first time
    kLost,         // name has ended; text says how and what follows
    kFailed,       // the cluster stops; exit_status, text says why
  };
  Kind kind = Kind::kReady;
  std::string name = "";
  std::string address = "";
  pid_t pid = 0;
  int exit_status = 0;
  std::string text = "";
};

// Without a newline; newlines in text become spaces.
std::string FormatSupervisorEvent(const SupervisorEvent& event);
// None where the line is not one of them.
absl::optional<SupervisorEvent> ParseSupervisorEvent(absl::string_view line);

}  // namespace perigee

#endif  // PERIGEE_CLIENT_CLI_CLUSTER_SUPERVISOR_EVENT_H_
