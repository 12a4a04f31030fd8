#include "worker/session/session.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/layout/abi.h"
#include "proto/support/defaults.h"
#include "worker/memory/descriptor_client.h"
#include "worker/ops/failure_reason.h"
#include "worker/session/session_members.h"
#include "worker/session/session_tokens.h"

namespace perigee {
namespace {

absl::Duration ToDuration(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

struct Timeouts {
  absl::Duration operation;
  absl::Duration warmup;
};

// An operation timeout that somebody has chosen holds for the first operation too, unless there is
// one for it.
absl::StatusOr<Timeouts> ParseTimeouts(const v1::Buffer& buffer) {
  const int64_t operation_ms = buffer.operation_timeout_ms();
  const int64_t warmup_ms = buffer.warmup_timeout_ms();
  if (operation_ms < 0 || warmup_ms < 0) {
    return absl::InvalidArgumentError(absl::StrCat("operation_timeout_ms is ", operation_ms,
                                                   " and warmup_timeout_ms is ", warmup_ms,
                                                   ", expected 0 or more"));
  }
  Timeouts timeouts{kOperationTimeout, kWarmupTimeout};
  if (operation_ms > 0) timeouts.operation = timeouts.warmup = absl::Milliseconds(operation_ms);
  if (warmup_ms > 0) timeouts.warmup = absl::Milliseconds(warmup_ms);
  return timeouts;
}

absl::Status CheckNoGuest(const SessionBuffer& buffer) {
  if (!buffer.guest()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("a local client is attached to, or has a ticket for, ", buffer.config().name));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> Session::Open(const std::string& group,
                                                       Generation generation,
                                                       const v1::OpenSessionCommand& command,
                                                       const SessionEnvironment& environment,
                                                       std::function<void()> on_low_tokens) {
  absl::Status status = CheckMembers(command, environment.worker, environment.incarnation);
  if (!status.ok()) return status;
  const absl::StatusOr<Transport> transport = ParseTransport(command.transport());
  if (!transport.ok()) return transport.status();
  GroupView view{group, generation, RankId(command.rank()), {}};
  std::vector<Member> members;
  for (const v1::GroupMember& member : command.members()) {
    view.workers.push_back(member.worker());
    members.push_back({*ParseIncarnation(member.incarnation()), member.socket_path()});
  }
  absl::StatusOr<std::unique_ptr<TokenLedger>> tokens =
      OpenTokenLedger(MakeTokenScope(group, generation, view.rank), command, environment.clock,
                      std::move(on_low_tokens));
  if (!tokens.ok()) return tokens.status();
  return std::shared_ptr<Session>(new Session(std::move(view), *transport, std::move(members),
                                              environment, *std::move(tokens)));
}

Session::Session(GroupView view, Transport transport, std::vector<Member> members,
                 const SessionEnvironment& environment, std::unique_ptr<TokenLedger> tokens)
    : view_(std::move(view)),
      transport_(transport),
      members_(std::move(members)),
      environment_(environment),
      tokens_(std::move(tokens)),
      counters_(std::make_unique<TransportCounters>(
          view_.group, view_.generation,
          TransportInWords(transport_, members_.size(), environment_.backend.info()))) {}

Session::~Session() {
  Abort({}, "the session ends");
  (void)Close();
}

absl::StatusOr<SessionBufferConfig> Session::ParseBuffer(const v1::Buffer& buffer) const {
  const int32_t ranks = static_cast<int32_t>(members_.size());
  absl::StatusOr<BufferShape> shape = ParseBufferShape(buffer.shape(), ranks);
  if (!shape.ok()) return shape.status();
  if (buffer.name().empty() || buffer.id() == 0) {
    return absl::InvalidArgumentError("the buffer has no name or no id");
  }
  if (absl::Status status = CheckShapeFor(transport_, *shape); !status.ok()) return status;
  const absl::StatusOr<Timeouts> timeouts = ParseTimeouts(buffer);
  if (!timeouts.ok()) return timeouts.status();
  return SessionBufferConfig{.name = buffer.name(),
                             .id = BufferId(buffer.id()),
                             .generation = view_.generation,
                             .rank = view_.rank,
                             .shape = *shape,
                             .transport = transport_,
                             .operation_timeout = timeouts->operation,
                             .warmup_timeout = timeouts->warmup,
                             .threads = environment_.threads,
                             .sms = buffer.sms(),
                             .local_sms = buffer.local_sms(),
                             .programmatic_launch = !buffer.no_programmatic_launch(),
                             .high_priority_stream = buffer.high_priority_stream(),
                             .tokens = tokens_.get(),
                             .counters = counters_.get()};
}

absl::StatusOr<uint64_t> Session::AllocateBuffer(const v1::AllocateBufferCommand& command) {
  absl::StatusOr<SessionBufferConfig> config = ParseBuffer(command.buffer());
  if (!config.ok()) return config.status();
  absl::StatusOr<std::vector<Ticket>> tickets =
      ParseTickets(command.tickets(), config->shape.geometry.ranks, view_.rank);
  if (!tickets.ok()) return tickets.status();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!aborted_.ok()) return aborted_;
    if (buffers_.count(config->name) > 0) {
      return absl::AlreadyExistsError(absl::StrCat(config->name, " is allocated already"));
    }
  }
  absl::StatusOr<std::shared_ptr<SessionBuffer>> buffer = SessionBuffer::Allocate(
      *config, environment_.backend, environment_.tensor_budget, &interrupt_);
  std::lock_guard<std::mutex> lock(mutex_);
  if (!aborted_.ok()) return aborted_;
  if (!buffer.ok()) return buffer.status();
  std::vector<PeerTicket> peers;
  for (int32_t rank = 0; rank < config->shape.geometry.ranks; ++rank) {
    if (rank == view_.rank.value) continue;
    peers.push_back({RankId(rank), members_[rank].incarnation, (*tickets)[rank]});
  }
  const ExportScope scope{HashGroupName(view_.group), view_.generation, config->id, view_.rank,
                          environment_.incarnation};
  if (transport_ == Transport::kNvlink) {
    environment_.descriptors.Publish(scope, peers, (*buffer)->forming_memory().parts());
  }
  buffers_[config->name] = *buffer;
  return (*buffer)->forming_memory().allocated_bytes();
}

absl::StatusOr<std::string> Session::NewRendezvous() {
  if (transport_ == Transport::kNvlink || view_.rank.value != 0) return std::string();
  return environment_.backend.NewRendezvous();
}

absl::Status Session::ConnectBuffer(const v1::ConnectBufferCommand& command) {
  absl::StatusOr<std::shared_ptr<SessionBuffer>> buffer = FindBuffer(command.buffer());
  if (!buffer.ok()) return buffer.status();
  absl::StatusOr<std::vector<Ticket>> tickets =
      ParseTickets(command.tickets(), static_cast<int32_t>(members_.size()), view_.rank);
  if (!tickets.ok()) return tickets.status();
  absl::Duration timeout = ToDuration(command.timeout());
  if (timeout <= absl::ZeroDuration()) timeout = kConnectTimeout;
  if (transport_ == Transport::kNccl) {
    (*buffer)->forming_memory().StandInForPeers();
    return (*buffer)->Open(command.rendezvous());
  }
  absl::Status status = ImportPeers(**buffer, *tickets, timeout);
  if (status.ok()) return (*buffer)->Open();
  std::lock_guard<std::mutex> lock(mutex_);
  return aborted_.ok() ? status : aborted_;
}

absl::Status Session::ImportPeers(SessionBuffer& buffer, const std::vector<Ticket>& tickets,
                                  absl::Duration timeout) {
  const WaitLimit limit(timeout, &interrupt_);
  DescriptorRequest request;
  request.abi = kDataPathAbi;
  request.group_hash = HashGroupName(view_.group);
  request.generation = view_.generation.value;
  request.buffer = buffer.config().id.value;
  request.requester_incarnation = environment_.incarnation;
  request.requester_rank = view_.rank.value;
  const std::vector<PartDescription> expected = buffer.forming_memory().part_descriptions();
  for (int32_t rank = 0; rank < static_cast<int32_t>(members_.size()); ++rank) {
    if (rank == view_.rank.value) continue;
    request.exporter_incarnation = members_[rank].incarnation;
    request.exporter_rank = rank;
    request.ticket = tickets[rank];
    absl::StatusOr<std::vector<FileDescriptor>> descriptors =
        FetchDescriptors(members_[rank].socket_path, request, expected, limit);
    absl::Status status =
        descriptors.ok() ? buffer.forming_memory().ImportPeer(RankId(rank), *std::move(descriptors))
                         : descriptors.status();
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat("descriptors of ", view_.Describe(rank), ": ",
                                                    status.message()));
  }
  return absl::OkStatus();
}

absl::Status Session::DropBuffer(const std::string& name) {
  std::shared_ptr<SessionBuffer> buffer;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = buffers_.find(name);
    if (found == buffers_.end()) return absl::OkStatus();
    if (running_.buffer == found->second) return CheckIdle();
    if (absl::Status status = CheckNoGuest(*found->second); !status.ok()) return status;
    buffer = found->second;
    buffers_.erase(found);
  }
  environment_.descriptors.Withdraw(buffer->config().id, view_.generation);
  buffer->Close(StaleObject(absl::StrCat(name, " was dropped")));
  return absl::OkStatus();
}

absl::Status Session::CheckIdle() const {
  if (running_.id == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("program ", running_.id, " is running on ", running_.buffer->config().name));
}

absl::Status Session::Execute(const v1::ExecuteProgramCommand& command, ProgressSink on_progress,
                              OutcomeSink on_outcome) {
  absl::StatusOr<std::shared_ptr<SessionBuffer>> buffer = FindBuffer(command.buffer());
  if (!buffer.ok()) return buffer.status();
  ProgramOrder order;
  order.program_id = command.program_id();
  order.first_sequence = Sequence(command.first_sequence());
  order.program = command.program();
  order.progress_interval = ToDuration(command.progress_interval());
  std::lock_guard<std::mutex> lock(mutex_);
  if (absl::Status status = CheckIdle(); !status.ok()) return status;
  absl::Status status = (*buffer)->BeginProgram(order.program_id);
  if (!status.ok()) return status;
  running_ = {order.program_id, *buffer};
  if (cancelled_program_ == order.program_id) (*buffer)->RequestCancel(true);
  program_thread_.Post([this, order = std::move(order), buffer = *std::move(buffer),
                        on_progress = std::move(on_progress), on_outcome = std::move(on_outcome)] {
    RunProgram(order, buffer, on_progress, on_outcome);
  });
  return absl::OkStatus();
}

// The outcome is reported last: whoever hears of it may start the next program, or read outputs.
void Session::RunProgram(const ProgramOrder& order, const std::shared_ptr<SessionBuffer>& buffer,
                         const ProgressSink& on_progress, const OutcomeSink& on_outcome) {
  const ProgramEvents events{on_progress, [this] { ++environment_.operations_done; }};
  const ProgramOutcome outcome =
      ProgramRunner(view_, buffer->site(), order, environment_.clock, events).Run();
  {
    // A wish that comes from now on finds no program.
    std::lock_guard<std::mutex> lock(mutex_);
    running_ = RunningProgram();
    buffer->RequestCancel(false);
  }
  buffer->EndProgram();
  on_outcome(outcome);
}

void Session::Cancel(uint64_t program_id) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (program_id == 0) return;
  cancelled_program_ = program_id;
  if (running_.id == program_id) running_.buffer->RequestCancel(true);
}

void Session::Abort(absl::Span<const int32_t> lost_ranks, const std::string& reason) {
  const auto describe = [&](std::string* out, int32_t rank) { *out += view_.Describe(rank); };
  std::string lost;
  // Whoever gave the reason may have named them.
  if (!lost_ranks.empty() && !absl::StrContains(reason, view_.Describe(lost_ranks[0]))) {
    lost = absl::StrCat(absl::StrJoin(lost_ranks, ", ", describe),
                        lost_ranks.size() == 1 ? " was lost" : " were lost");
  }
  const std::string text =
      absl::StrCat("generation ", view_.generation.value, " of ", view_.group, " was aborted",
                   lost.empty() ? "" : ", ", lost, ": ", reason);
  // A single lost rank is named by the data path itself.
  const std::string cause =
      lost.empty() || lost_ranks.size() == 1 ? reason : absl::StrCat(lost, ": ", reason);
  std::lock_guard<std::mutex> lock(mutex_);
  if (!aborted_.ok()) return;
  aborted_ = WithReason(absl::UnavailableError(text), kReasonGenerationAborted);
  tokens_->Close();
  interrupt_.Raise();
  for (const auto& [name, buffer] : buffers_) buffer->Abort(aborted_, lost_ranks, cause);
}

absl::Status Session::Close() {
  absl::Status closed;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (aborted_.ok()) {
      if (absl::Status status = CheckIdle(); !status.ok()) return status;
      for (const auto& [name, buffer] : buffers_) {
        if (absl::Status status = CheckNoGuest(*buffer); !status.ok()) return status;
      }
      aborted_ = StaleObject(
          absl::StrCat("generation ", view_.generation.value, " of ", view_.group, " was closed"));
      tokens_->Close();
    }
    closed = aborted_;
  }
  program_thread_.Drain();
  std::map<std::string, std::shared_ptr<SessionBuffer>> buffers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    buffers.swap(buffers_);
  }
  for (const auto& [name, buffer] : buffers) {
    environment_.descriptors.Withdraw(buffer->config().id, view_.generation);
    if (const std::shared_ptr<BufferGuest> guest = buffer->guest()) guest->AwaitEnd();
    buffer->Close(closed);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SessionBuffer>> Session::FindBuffer(const std::string& name) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!aborted_.ok()) return aborted_;
  const auto found = buffers_.find(name);
  if (found != buffers_.end()) return found->second;
  return absl::NotFoundError(absl::StrCat("there is no buffer '", name, "' in generation ",
                                          view_.generation.value, " of ", view_.group));
}

}  // namespace perigee
