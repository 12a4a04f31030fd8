#include "worker/attach/attach_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/defaults.h"
#include "proto/support/event_log.h"
#include "worker/attach/client_process.h"
#include "worker/ops/failure_reason.h"

namespace perigee {
namespace {

// Connections without a request; more wait in the listener's backlog.
constexpr size_t kMaxCallers = 64;
// How long a worker without free descriptors waits before it accepts again.
constexpr absl::Duration kExhaustedPause = absl::Milliseconds(100);

bool IsReady(int fd) {
  pollfd ready{fd, POLLIN, 0};
  return fd >= 0 && poll(&ready, 1, 0) == 1;
}

StopReason Gone(const std::string& why) {
  return {absl::UnavailableError(why), kReasonClientLost, false, {}};
}
StopReason Ended(const std::string& why) {
  return {absl::CancelledError(why), kReasonCancelled, true, {}};
}

absl::StatusOr<Ticket> ParseTicket(const std::string& bytes) {
  Ticket ticket{};
  if (bytes.size() != ticket.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ticket has ", bytes.size(), " bytes, expected ", ticket.size()));
  }
  std::memcpy(ticket.data(), bytes.data(), bytes.size());
  return ticket;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttachServer>> AttachServer::Start(
    const std::string& path, const ClientUsers& users, const SessionEnvironment& environment) {
  const ListenOptions options{.any_user = users.others_allowed(), .name_senders = true};
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(path, options);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<AttachServer> server(new AttachServer(*std::move(listener), users, environment));
  server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  return server;
}

AttachServer::AttachServer(UnixListener listener, const ClientUsers& users,
                           const SessionEnvironment& environment)
    : listener_(std::move(listener)), users_(users), environment_(environment) {}

AttachServer::~AttachServer() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    for (auto& [key, entry] : entries_) entry.attachment->Stop(Ended("the worker ends"));
  }
  wake_.Set();
  thread_.join();
}

absl::Status AttachServer::Serve(Session& session, const v1::ServeClientCommand& command,
                                 AttachEvents events) {
  const absl::StatusOr<Ticket> ticket = ParseTicket(command.ticket());
  if (!ticket.ok()) return ticket.status();
  const absl::Duration life =
      absl::Seconds(command.life().seconds()) + absl::Nanoseconds(command.life().nanos());
  if (command.attachment_id() == 0 || command.first_sequence() == 0 ||
      life <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError("attachment_id, first_sequence or life is 0");
  }
  absl::StatusOr<std::shared_ptr<SessionBuffer>> buffer = session.FindBuffer(command.buffer());
  if (!buffer.ok()) return buffer.status();
  const GroupView& group = session.view();
  absl::StatusOr<std::shared_ptr<Attachment>> attachment = Attachment::Create(
      group, *buffer, Sequence(command.first_sequence()), environment_, [this] { wake_.Set(); });
  if (!attachment.ok()) return attachment.status();
  const AttachScope scope{HashGroupName(group.group), group.generation, (*buffer)->config().id,
                          group.rank, environment_.incarnation};
  std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_[++last_key_];
  entry.generation = group.generation;
  entry.attachment_id = command.attachment_id();
  entry.attachment = *std::move(attachment);
  entry.events = std::move(events);
  tickets_.Issue(last_key_, scope, *ticket, environment_.clock.Monotonic() + life);
  Report(entry, v1::ClientReport::ADMITTED);
  wake_.Set();
  return absl::OkStatus();
}

void AttachServer::End(Generation generation, uint64_t attachment_id, const std::string& reason,
                       absl::optional<Sequence> beyond) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [key, entry] : entries_) {
    if (entry.generation != generation || entry.attachment_id != attachment_id) continue;
    StopReason ended = Ended(absl::StrCat("the attachment was ended: ", reason));
    if (beyond) {
      entry.attachment->StopBeyond(*beyond, std::move(ended));
    } else {
      entry.attachment->Stop(std::move(ended));
    }
  }
}

void AttachServer::Report(const Entry& entry, v1::ClientReport::State state, int32_t pid) const {
  v1::ClientReport report;
  report.set_pid(pid);
  report.set_attachment_id(entry.attachment_id);
  report.set_state(state);
  if (state == v1::ClientReport::ADMITTED) {
    report.set_socket_path(path());
    report.set_worker_uid(geteuid());
  }
  entry.events.on_report(report);
}

void AttachServer::Run() {
  bool accepting = true;
  while (true) {
    AwaitWork(accepting);
    wake_.Clear();
    WatchLeases();
    ExpireTickets();
    AdvanceAll();
    ServeEmbeddedCallers();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_ && entries_.empty() && embedded_callers_.empty()) return;
    }
    ServeCallers();
    accepting = AcceptAll();
  }
}

void AttachServer::AwaitWork(bool accepting) {
  const bool room = accepting && callers_.size() < kMaxCallers;
  std::vector<pollfd> watched = {{wake_.fd(), POLLIN, 0}, {room ? listener_.fd() : -1, POLLIN, 0}};
  absl::Duration wait = accepting ? absl::Minutes(1) : kExhaustedPause;
  for (const Caller& caller : callers_) {
    watched.push_back({caller.socket.fd(), POLLIN, 0});
    wait = std::min(wait, caller.limit.remaining());
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    absl::Duration due = tickets_.NextExpiry();
    for (const auto& [key, entry] : entries_) {
      due = std::min(due, entry.attachment->NextDeadline());
      if (!entry.lease || entry.lease->over) continue;
      watched.push_back({entry.lease->socket.fd(), POLLIN, 0});
      watched.push_back({entry.lease->process.get(), POLLIN, 0});
    }
    wait = std::min(wait, due - environment_.clock.Monotonic());
  }
  const int milliseconds =
      static_cast<int>(absl::ToInt64Milliseconds(std::max(wait, absl::ZeroDuration()))) + 1;
  // A failed poll (a signal) is an early look.
  (void)poll(watched.data(), watched.size(), milliseconds);
}

bool AttachServer::AcceptAll() {
  while (callers_.size() < kMaxCallers) {
    absl::StatusOr<absl::optional<UnixSocket>> next = listener_.Accept();
    if (!next.ok()) {
      LogEvent(LogLevel::kWarning, "attach_connection_refused", {{"status", next.status()}});
      if (absl::IsResourceExhausted(next.status())) return false;
      continue;
    }
    if (!next->has_value()) return true;
    callers_.push_back({**std::move(next), WaitLimit(kConnectTimeout)});
  }
  return true;
}

// A connection has one request, and ends when none has come in time.
void AttachServer::ServeCallers() {
  std::vector<Caller> waiting;
  for (Caller& caller : callers_) {
    if (IsReady(caller.socket.fd())) {
      ServeCaller(caller.socket);
    } else if (caller.limit.remaining() > absl::ZeroDuration()) {
      waiting.push_back(std::move(caller));
    }
  }
  callers_.swap(waiting);
}

// What a caller is told does not say why, nor anything about what is here.
void AttachServer::ServeCaller(UnixSocket& socket) {
  const absl::Status status = Attach(socket);
  if (status.ok()) return;
  LogEvent(LogLevel::kWarning, "attach_refused", {{"status", status}});
  AttachReply refusal;
  refusal.code = static_cast<uint32_t>(absl::StatusCode::kPermissionDenied);
  // Whether it still listens does not matter.
  (void)socket.Send(ToBytes(refusal), {}, WaitLimit(absl::ZeroDuration()));
}

absl::Status AttachServer::Attach(UnixSocket& socket) {
  const absl::StatusOr<PeerCredentials> client = socket.peer();
  if (!client.ok()) return client.status();
  // Read whoever it is: a connection that is closed over an unread message loses the answer.
  absl::StatusOr<SocketMessage> message =
      socket.Receive(sizeof(AttachRequest), /*max_descriptors=*/0, WaitLimit(absl::ZeroDuration()));
  if (!message.ok()) return message.status();
  absl::Status status = users_.CheckSender(*client, message->sender);
  if (!status.ok()) return status;
  const absl::StatusOr<AttachRequest> request = ParseAttachRequest(message->bytes);
  if (!request.ok()) return request.status();
  const absl::StatusOr<uint64_t> key = Redeem(*request);
  if (!key.ok()) return key.status();
  return HandOver(*key, socket, *client);
}

absl::StatusOr<uint64_t> AttachServer::Redeem(const AttachRequest& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  const AttachTicketBook::Redeemed redeemed =
      tickets_.Redeem(request, environment_.clock.Monotonic());
  if (redeemed.status.ok()) return *redeemed.attachment;
  if (redeemed.attachment) {
    entries_.at(*redeemed.attachment)
        .attachment->Stop(
            Ended(absl::StrCat("its ticket was presented wrongly: ", redeemed.status.message())));
  }
  return redeemed.status;
}

absl::Status AttachServer::HandOver(uint64_t key, UnixSocket& socket,
                                    const PeerCredentials& client) {
  std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_.at(key);
  Attachment& attachment = *entry.attachment;
  if (!attachment.Start()) return absl::UnavailableError("the attachment has been ended");
  absl::Status sent = socket.Send(ToBytes(attachment.reply()), attachment.descriptors(),
                                  WaitLimit(absl::ZeroDuration()));  // it is fresh: there is room
  if (!sent.ok()) attachment.Stop(Gone("it went before it had its answer"));
  FileDescriptor process = WatchProcess(socket, client);
  entry.lease = Lease{std::move(socket), std::move(process), client};
  LogEvent(LogLevel::kInfo, "client_attached",
           {{"attachment", entry.attachment_id},
            {"generation", entry.generation.value},
            {"pid", client.pid},
            {"uid", client.uid}});
  Report(entry, v1::ClientReport::ATTACHED, client.pid);
  return absl::OkStatus();
}

absl::StatusOr<EmbeddedAttachment> AttachServer::AttachEmbedded(const AttachRequest& request) {
  std::future<absl::StatusOr<EmbeddedAttachment>> answer;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return absl::UnavailableError("the worker ends");
    embedded_callers_.push_back({request, {}});
    answer = embedded_callers_.back().answer.get_future();
  }
  wake_.Set();
  return answer.get();
}

// On the thread that also takes attachments apart: what is handed over is whole.
void AttachServer::ServeEmbeddedCallers() {
  std::vector<EmbeddedCaller> callers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    callers.swap(embedded_callers_);
  }
  for (EmbeddedCaller& caller : callers) {
    absl::StatusOr<EmbeddedAttachment> answer = HandOverEmbedded(caller.request);
    if (!answer.ok()) {
      LogEvent(LogLevel::kWarning, "attach_refused", {{"status", answer.status()}});
    }
    caller.answer.set_value(std::move(answer));
  }
}

absl::StatusOr<EmbeddedAttachment> AttachServer::HandOverEmbedded(const AttachRequest& request) {
  const absl::StatusOr<uint64_t> key = Redeem(request);
  if (!key.ok()) return key.status();
  std::lock_guard<std::mutex> lock(mutex_);
  Entry& entry = entries_.at(*key);
  EmbeddedAttachment handed;
  handed.attachment = entry.attachment;
  if (!handed.attachment->Start()) return absl::UnavailableError("the attachment has been ended");
  handed.reply = handed.attachment->reply();
  handed.shape = handed.attachment->shape();
  const std::vector<int> descriptors = handed.attachment->descriptors();
  const std::vector<AttachPart> parts = PartsOf(handed.reply);
  handed.peers.resize(handed.reply.peers);
  for (size_t i = 0; i < descriptors.size(); ++i) {
    FileDescriptor& duplicate = i < parts.size() ? handed.descriptors[static_cast<size_t>(parts[i])]
                                                 : handed.peers[i - parts.size()];
    duplicate = FileDescriptor(fcntl(descriptors[i], F_DUPFD_CLOEXEC, 0));
    if (duplicate.valid()) continue;
    handed.attachment->Stop(Ended("this process has no descriptors left for its client"));
    return absl::ResourceExhaustedError("no descriptors are left for the client's memory");
  }
  LogEvent(LogLevel::kInfo, "client_attached",
           {{"attachment", entry.attachment_id},
            {"generation", entry.generation.value},
            {"pid", getpid()},
            {"embedded", true}});
  Report(entry, v1::ClientReport::ATTACHED, getpid());
  return handed;
}

void AttachServer::WatchLeases() {
  // Only this thread takes entries away.
  std::vector<Entry*> leased;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [key, entry] : entries_) {
      if (entry.lease && !entry.lease->over) leased.push_back(&entry);
    }
  }
  for (Entry* entry : leased) WatchLease(*entry->attachment, *entry->lease);
}

void AttachServer::WatchLease(Attachment& attachment, Lease& lease) {
  if (IsReady(lease.socket.fd())) {
    lease.over = true;
    const absl::StatusOr<SocketMessage> message = lease.socket.Receive(
        sizeof(DetachMessage), /*max_descriptors=*/0, WaitLimit(absl::ZeroDuration()));
    if (!message.ok()) {
      attachment.Stop(Gone("its connection ended"));
    } else if (ParseDetachMessage(message->bytes).ok() && message->sender == lease.client) {
      attachment.Stop(Ended("the client has detached"));
    } else {
      attachment.Stop(Gone("what came over its connection is no word of its process"));
    }
  } else if (IsReady(lease.process.get())) {
    lease.over = true;
    attachment.Stop(Gone("its process has ended"));
  }
}

void AttachServer::ExpireTickets() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const uint64_t key : tickets_.TakeExpired(environment_.clock.Monotonic())) {
    entries_.at(key).attachment->Stop(Ended("its ticket was not used in time"));
  }
}

void AttachServer::AdvanceAll() {
  std::vector<uint64_t> keys;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [key, entry] : entries_) keys.push_back(key);
  }
  for (const uint64_t key : keys) {
    Entry* entry = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      entry = &entries_.at(key);
    }
    // Not under the lock: it may wait for memory to be given back.
    const absl::optional<AttachmentEnd> end =
        entry->attachment->Advance(environment_.clock.Monotonic());
    if (end) {
      LogEvent(end->status.code() == 0 ? LogLevel::kInfo : LogLevel::kWarning, "client_ended",
               {{"attachment", entry->attachment_id},
                {"generation", entry->generation.value},
                {"attached", end->end.attached()},
                {"orderly", end->end.orderly()},
                {"last_sequence", end->end.last_sequence()},
                {"reason", end->end.reason()},
                {"message", end->status.message()}});
      entry->events.on_end(*end);
    }
    if (!entry->attachment->finished()) continue;
    std::lock_guard<std::mutex> lock(mutex_);
    tickets_.Revoke(key);
    entries_.erase(key);
  }
}

}  // namespace perigee
