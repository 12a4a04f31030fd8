// What a worker does when the coordinator tells it something: the step between the command stream
// and the session. It knows no gRPC; commands come in, reports go out.
#ifndef PERIGEE_WORKER_RPC_COMMAND_HANDLER_H_
#define PERIGEE_WORKER_RPC_COMMAND_HANDLER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "proto/v1/command.pb.h"
#include "worker/attach/attach_server.h"
#include "worker/session/current_session.h"
#include "worker/session/serial_thread.h"
#include "worker/session/session.h"

namespace perigee {

// Every command gets exactly one result, in any order. An abort takes effect, and a cancel or a
// grant of publication tokens is passed on, before Receive returns; all else, and the answer to an
// abort, follows on a thread of the handler's own, in the order of arrival.
//
// Refused, both sides named: a command of a term older than one that was seen; one that is for
// another group or generation than the session's. A session of a newer generation takes the place
// of an older one, which is aborted: generations are unique and ascending, so whoever opens the
// newer one knows that the older one is over.
class CommandHandler {
 public:
  using ReportSink = std::function<void(const v1::WorkerReport&)>;  // from any thread; not blocking

  // Everything outlives the handler.
  CommandHandler(const SessionEnvironment& environment, CurrentSession& current,
                 AttachServer& clients, ReportSink sink);
  ~CommandHandler();  // Leave("the worker ends")

  // Never blocks for long. From any thread.
  void Receive(const v1::WorkerCommand& command);

  // False when a newer term has been seen.
  bool ObserveTerm(uint64_t term);
  uint64_t term() const { return term_; }

  // Aborts and closes the session, refuses all further commands. Blocks until memory is given back.
  void Leave(const std::string& reason);

 private:
  void Run(const v1::WorkerCommand& command);
  absl::Status OpenSession(const v1::WorkerCommand& command);
  absl::Status EndSession(const std::shared_ptr<Session>& session);
  absl::Status InSession(const v1::WorkerCommand& command, Session& session,
                         v1::CommandResult& result);
  absl::Status Execute(const v1::WorkerCommand& command, Session& session);
  absl::Status ServeClient(const v1::WorkerCommand& command, Session& session);
  void Answer(const v1::WorkerCommand& command, const absl::Status& status,
              v1::CommandResult result = {});

  const SessionEnvironment& environment_;
  CurrentSession& current_;
  AttachServer& clients_;
  const ReportSink sink_;
  std::atomic<uint64_t> term_ = 0;
  std::atomic<bool> leaving_ = false;
  SerialThread commands_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_RPC_COMMAND_HANDLER_H_
