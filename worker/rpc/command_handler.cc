#include "worker/rpc/command_handler.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/support/event_log.h"
#include "worker/ops/failure_reason.h"
#include "worker/session/session_tokens.h"

namespace perigee {
namespace {

const char* CommandName(const v1::WorkerCommand& command) {
  switch (command.command_case()) {
    case v1::WorkerCommand::kOpenSession:
      return "open_session";
    case v1::WorkerCommand::kAllocateBuffer:
      return "allocate_buffer";
    case v1::WorkerCommand::kConnectBuffer:
      return "connect_buffer";
    case v1::WorkerCommand::kExecuteProgram:
      return "execute_program";
    case v1::WorkerCommand::kCancelProgram:
      return "cancel_program";
    case v1::WorkerCommand::kAbortGeneration:
      return "abort_generation";
    case v1::WorkerCommand::kCloseSession:
      return "close_session";
    case v1::WorkerCommand::kDropBuffer:
      return "drop_buffer";
    case v1::WorkerCommand::kServeClient:
      return "serve_client";
    case v1::WorkerCommand::kEndClient:
      return "end_client";
    case v1::WorkerCommand::kGrantTokens:
      return "grant_tokens";
    case v1::WorkerCommand::kReportTokens:
      return "report_tokens";
    case v1::WorkerCommand::COMMAND_NOT_SET:
      break;
  }
  return "unknown";
}

v1::CommandResult ResultWithCounts(Session& session) {
  v1::CommandResult result;
  *result.mutable_tokens() = CountsOf(session.tokens());
  return result;
}

absl::Status TakeTokens(const v1::WorkerCommand& command, Session& session) {
  if (!command.has_grant_tokens()) return absl::OkStatus();
  return TakeGrant(session.tokens(), command.grant_tokens());
}

v1::WorkerReport ToReport(v1::CommandResult result) {
  v1::WorkerReport report;
  *report.mutable_result() = std::move(result);
  return report;
}

}  // namespace

CommandHandler::CommandHandler(const SessionEnvironment& environment, CurrentSession& current,
                               AttachServer& clients, ReportSink sink)
    : environment_(environment), current_(current), clients_(clients), sink_(std::move(sink)) {}

CommandHandler::~CommandHandler() { Leave("the worker ends"); }

bool CommandHandler::ObserveTerm(uint64_t term) {
  uint64_t seen = term_;
  while (seen < term && !term_.compare_exchange_weak(seen, term)) {
  }
  return term >= seen;
}

void CommandHandler::Receive(const v1::WorkerCommand& command) {
  if (!ObserveTerm(command.term())) {
    Answer(command, StaleObject(absl::StrCat("the command is of term ", command.term(), ", term ",
                                             term(), " was seen")));
    return;
  }
  if (leaving_) {
    Answer(command, absl::UnavailableError("the worker is leaving"));
    return;
  }
  const bool of_tokens = command.has_grant_tokens() || command.has_report_tokens();
  if (command.has_abort_generation() || command.has_cancel_program() || of_tokens) {
    absl::StatusOr<std::shared_ptr<Session>> session =
        current_.Find(command.group(), Generation(command.generation()));
    if (!session.ok()) {
      Answer(command, session.status());
      return;
    }
    if (command.has_cancel_program()) {
      (*session)->Cancel(command.cancel_program().program_id());
      Answer(command, absl::OkStatus());
      return;
    }
    if (of_tokens) {
      const absl::Status taken = TakeTokens(command, **session);
      Answer(command, taken, ResultWithCounts(**session));
      return;
    }
    const v1::AbortGenerationCommand& abort = command.abort_generation();
    (*session)->Abort({abort.lost_ranks().data(), static_cast<size_t>(abort.lost_ranks_size())},
                      abort.reason());
  }
  commands_.Post([this, command] { Run(command); });
}

void CommandHandler::Run(const v1::WorkerCommand& command) {
  v1::CommandResult result;
  absl::Status status;
  if (command.has_open_session()) {
    status = OpenSession(command);
  } else if (command.has_end_client()) {
    const v1::EndClientCommand& end = command.end_client();
    absl::optional<Sequence> beyond;
    if (end.beyond_only()) beyond = Sequence(end.last_sequence());
    clients_.End(Generation(command.generation()), end.attachment_id(), end.reason(), beyond);
  } else {
    absl::StatusOr<std::shared_ptr<Session>> session =
        current_.Find(command.group(), Generation(command.generation()));
    if (!session.ok()) {
      status = session.status();
    } else if (command.has_execute_program()) {
      status = Execute(command, **session);
      if (status.ok()) return;  // answered by the program
    } else if (command.has_serve_client()) {
      status = ServeClient(command, **session);
      if (status.ok()) return;  // answered by the attachment
    } else if (command.has_abort_generation() || command.has_close_session()) {
      status = EndSession(*session);
      result = ResultWithCounts(**session);
    } else {
      status = InSession(command, **session, result);
    }
  }
  Answer(command, status, std::move(result));
}

absl::Status CommandHandler::OpenSession(const v1::WorkerCommand& command) {
  const Generation generation(command.generation());
  const std::shared_ptr<Session> older = current_.Get();
  if (older && older->view().generation >= generation) {
    return StaleObject(absl::StrCat("generation ", generation.value, " of ", command.group(),
                                    " cannot open: generation ", older->view().generation.value,
                                    " of ", older->view().group, " lives here"));
  }
  const auto on_low_tokens = [this, group = command.group(), generation] {
    v1::WorkerReport report;
    report.mutable_tokens()->set_group(group);
    report.mutable_tokens()->set_generation(generation.value);
    sink_(report);
  };
  absl::StatusOr<std::shared_ptr<Session>> session = Session::Open(
      command.group(), generation, command.open_session(), environment_, on_low_tokens);
  if (!session.ok()) return session.status();
  if (older) {
    older->Abort({}, absl::StrCat("generation ", generation.value, " of ", command.group(),
                                  " takes its place"));
    if (absl::Status status = EndSession(older); !status.ok()) return status;
  }
  if (leaving_) return absl::UnavailableError("the worker is leaving");
  current_.Exchange(*std::move(session));
  return absl::OkStatus();
}

absl::Status CommandHandler::EndSession(const std::shared_ptr<Session>& session) {
  absl::Status status = session->Close();
  if (status.ok()) current_.Exchange(nullptr);
  return status;
}

absl::Status CommandHandler::InSession(const v1::WorkerCommand& command, Session& session,
                                       v1::CommandResult& result) {
  if (command.has_allocate_buffer()) {
    absl::StatusOr<uint64_t> bytes = session.AllocateBuffer(command.allocate_buffer());
    if (!bytes.ok()) return bytes.status();
    absl::StatusOr<std::string> rendezvous = session.NewRendezvous();
    if (!rendezvous.ok()) return rendezvous.status();
    result.set_allocated_bytes(*bytes);
    result.set_rendezvous(*std::move(rendezvous));
    return absl::OkStatus();
  }
  if (command.has_connect_buffer()) return session.ConnectBuffer(command.connect_buffer());
  if (command.has_drop_buffer()) return session.DropBuffer(command.drop_buffer().buffer());
  return absl::UnimplementedError("the command is unknown here");
}

absl::Status CommandHandler::Execute(const v1::WorkerCommand& command, Session& session) {
  const auto on_progress = [this](const v1::ProgramProgress& progress) {
    v1::WorkerReport report;
    *report.mutable_progress() = progress;
    sink_(report);
  };
  const uint64_t command_id = command.command_id();
  const auto on_outcome = [this, command_id](const ProgramOutcome& outcome) {
    LogEvent(outcome.status.code() == 0 ? LogLevel::kInfo : LogLevel::kWarning, "program_ended",
             {{"group", outcome.progress.group()},
              {"rank", outcome.progress.rank()},
              {"program", outcome.progress.program_id()},
              {"last_sequence", outcome.progress.last_sequence()},
              {"code", outcome.status.code()},
              {"reason", outcome.status.reason()},
              {"message", outcome.status.message()}});
    v1::CommandResult result;
    result.set_command_id(command_id);
    *result.mutable_status() = outcome.status;
    *result.mutable_progress() = outcome.progress;
    sink_(ToReport(std::move(result)));
  };
  return session.Execute(command.execute_program(), on_progress, on_outcome);
}

absl::Status CommandHandler::ServeClient(const v1::WorkerCommand& command, Session& session) {
  AttachEvents events;
  events.on_report = [this, group = command.group()](const v1::ClientReport& client) {
    v1::WorkerReport report;
    *report.mutable_client() = client;
    report.mutable_client()->set_group(group);
    sink_(report);
  };
  events.on_end = [this, command_id = command.command_id()](const AttachmentEnd& end) {
    v1::CommandResult result;
    result.set_command_id(command_id);
    *result.mutable_status() = end.status;
    *result.mutable_client_end() = end.end;
    sink_(ToReport(std::move(result)));
  };
  return clients_.Serve(session, command.serve_client(), std::move(events));
}

void CommandHandler::Answer(const v1::WorkerCommand& command, const absl::Status& status,
                            v1::CommandResult result) {
  const std::shared_ptr<Session> session = current_.Get();
  v1::RankStatus& report = *result.mutable_status();
  if (command.has_open_session()) {
    report.set_rank(command.open_session().rank());
  } else {
    report.set_rank(session ? session->view().rank.value : -1);
  }
  report.set_worker(environment_.worker);
  report.set_code(static_cast<int32_t>(status.code()));
  report.set_message(std::string(status.message()));
  report.set_reason(ReasonOf(status));
  result.set_command_id(command.command_id());
  LogEvent(status.ok() ? LogLevel::kInfo : LogLevel::kWarning, "command",
           {{"command", CommandName(command)},
            {"id", command.command_id()},
            {"group", command.group()},
            {"generation", command.generation()},
            {"rank", report.rank()},
            {"status", status}});
  sink_(ToReport(std::move(result)));
}

void CommandHandler::Leave(const std::string& reason) {
  leaving_ = true;
  if (const std::shared_ptr<Session> session = current_.Get()) session->Abort({}, reason);
  // After what is queued: a session that opens now does not stay.
  commands_.Post([this, reason] {
    const std::shared_ptr<Session> session = current_.Exchange(nullptr);
    if (!session) return;
    session->Abort({}, reason);
    (void)session->Close();  // after an abort it does not fail
  });
  commands_.Drain();
}

}  // namespace perigee
