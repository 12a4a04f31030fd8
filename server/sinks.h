// The far ends of streams and calls, as the control plane sees them. Everything here is called with
// the control plane's mutex held: an implementation never blocks and never calls back. Each may be
// called after its stream has gone; it then does nothing.
#ifndef PERIGEE_SERVER_SINKS_H_
#define PERIGEE_SERVER_SINKS_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "proto/v1/command.pb.h"
#include "proto/v1/groups.pb.h"
#include "server/groups/group_events.h"

namespace perigee {

class StreamSink {
 public:
  virtual ~StreamSink() = default;
  // The last thing it hears.
  virtual void End(const absl::Status& status) = 0;
};

// A worker's commands, to be delivered in order.
class CommandSink : public StreamSink {
 public:
  virtual void Send(const v1::WorkerCommand& command) = 0;
  // Those that the transport was not given, in order; it will not be. All others count as sent:
  // the worker may or may not have got them.
  virtual std::vector<v1::WorkerCommand> TakeUnsent() = 0;
};

// A watcher of a group. Of updates that cannot be delivered at once only the latest matters.
class GroupSink : public StreamSink {
 public:
  virtual void Update(const v1::Group& group) = 0;
};

// The caller of ExecuteProgram. Of progress that cannot be delivered at once only the latest of
// each rank matters.
class ProgramSink {
 public:
  virtual ~ProgramSink() = default;
  virtual void Progress(const v1::ExecuteProgramResponse& message) = 0;
  // The last thing it hears.
  virtual void Finish(const CallResult& result) = 0;
};

using CallDone = std::function<void(const CallResult&)>;

}  // namespace perigee

#endif  // PERIGEE_SERVER_SINKS_H_
