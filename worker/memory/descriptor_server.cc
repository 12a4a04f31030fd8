#include "worker/memory/descriptor_server.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/defaults.h"
#include "proto/support/event_log.h"

namespace perigee {
namespace {

// More wait in the listener's backlog.
constexpr size_t kMaxConnections = 64;
// How long a worker without free descriptors waits before it accepts again.
constexpr absl::Duration kExhaustedPause = absl::Milliseconds(100);

// What the requester is told: not why, and nothing about what is here.
DescriptorReply Refusal() {
  DescriptorReply reply;
  reply.code = static_cast<uint32_t>(absl::StatusCode::kPermissionDenied);
  return reply;
}

absl::Status SendParts(const std::vector<OfferedPart>& parts, UnixSocket& socket) {
  const WaitLimit at_once(absl::ZeroDuration());  // the connection is fresh: there is room
  for (size_t first = 0; first < parts.size(); first += kPartsPerReply) {
    const size_t count = std::min<size_t>(kPartsPerReply, parts.size() - first);
    DescriptorReply reply;
    reply.part_count = static_cast<uint32_t>(parts.size());
    reply.first_part = static_cast<uint32_t>(first);
    reply.parts_here = static_cast<uint32_t>(count);
    std::vector<int> descriptors(count);
    for (size_t i = 0; i < count; ++i) {
      reply.parts[i] = parts[first + i].description;
      descriptors[i] = parts[first + i].descriptor;
    }
    if (absl::Status status = socket.Send(ToBytes(reply), descriptors, at_once); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<DescriptorServer>> DescriptorServer::Start(const std::string& path,
                                                                          const Clock& clock) {
  absl::StatusOr<UnixListener> listener = UnixListener::Listen(path);
  if (!listener.ok()) return listener.status();
  std::unique_ptr<DescriptorServer> server(new DescriptorServer(*std::move(listener), clock));
  server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  return server;
}

DescriptorServer::DescriptorServer(UnixListener listener, const Clock& clock)
    : listener_(std::move(listener)), clock_(clock) {}

DescriptorServer::~DescriptorServer() {
  stop_.Raise();
  thread_.join();
}

void DescriptorServer::Publish(const ExportScope& scope, const std::vector<PeerTicket>& tickets,
                               std::vector<OfferedPart> parts) {
  std::lock_guard<std::mutex> lock(mutex_);
  tickets_.Issue(scope, tickets, clock_.Monotonic() + kAttachTicketLife);
  offers_.push_back({scope.buffer, scope.generation, std::move(parts)});
}

void DescriptorServer::Withdraw(BufferId buffer, Generation generation) {
  std::lock_guard<std::mutex> lock(mutex_);
  tickets_.Revoke(buffer, generation);
  const auto dead = [&](const Offer& offer) {
    return offer.buffer == buffer && offer.generation == generation;
  };
  offers_.erase(std::remove_if(offers_.begin(), offers_.end(), dead), offers_.end());
}

void DescriptorServer::Run() {
  bool accepting = true;
  while (AwaitWork(accepting)) {
    ServeReady();
    accepting = AcceptAll();
  }
}

bool DescriptorServer::AwaitWork(bool accepting) {
  const bool room = accepting && connections_.size() < kMaxConnections;
  std::vector<pollfd> watched = {{stop_.fd(), POLLIN, 0}, {room ? listener_.fd() : -1, POLLIN, 0}};
  absl::Duration wait = accepting ? absl::Minutes(1) : kExhaustedPause;
  for (const Connection& connection : connections_) {
    watched.push_back({connection.socket.fd(), POLLIN, 0});
    wait = std::min(wait, connection.limit.remaining());
  }
  const int milliseconds = static_cast<int>(absl::ToInt64Milliseconds(wait)) + 1;
  // A failed poll (a signal) is an early look.
  if (poll(watched.data(), watched.size(), milliseconds) < 0) return true;
  return watched[0].revents == 0;
}

bool DescriptorServer::AcceptAll() {
  while (connections_.size() < kMaxConnections) {
    absl::StatusOr<absl::optional<UnixSocket>> next = listener_.Accept();
    if (!next.ok()) {
      LogEvent(LogLevel::kWarning, "descriptor_connection_refused", {{"status", next.status()}});
      if (absl::IsResourceExhausted(next.status())) return false;
      continue;
    }
    if (!next->has_value()) return true;
    connections_.push_back({**std::move(next), WaitLimit(kConnectTimeout)});
  }
  return true;
}

// A connection ends with its one request, or when none has come in time.
void DescriptorServer::ServeReady() {
  std::vector<Connection> waiting;
  for (Connection& connection : connections_) {
    pollfd ready{connection.socket.fd(), POLLIN, 0};
    if (poll(&ready, 1, 0) == 1) {
      Serve(connection.socket);
    } else if (connection.limit.remaining() > absl::ZeroDuration()) {
      waiting.push_back(std::move(connection));
    }
  }
  connections_.swap(waiting);
}

void DescriptorServer::Serve(UnixSocket& socket) {
  const WaitLimit at_once(absl::ZeroDuration());
  absl::StatusOr<SocketMessage> message =
      socket.Receive(sizeof(DescriptorRequest), /*max_descriptors=*/0, at_once);
  if (!message.ok()) {
    LogEvent(LogLevel::kWarning, "descriptor_request_broken", {{"status", message.status()}});
    return;
  }
  absl::StatusOr<DescriptorRequest> request = ParseDescriptorRequest(message->bytes);
  absl::Status status = request.ok() ? HandOut(*request, socket) : request.status();
  if (status.ok()) return;
  LogEvent(LogLevel::kWarning, "descriptor_request_refused",
           {{"requester_rank", request.ok() ? request->requester_rank : -1}, {"status", status}});
  // Whether it still listens does not matter.
  (void)socket.Send(ToBytes(Refusal()), {}, at_once);
}

absl::Status DescriptorServer::HandOut(const DescriptorRequest& request, UnixSocket& socket) {
  std::lock_guard<std::mutex> lock(mutex_);
  absl::Status status = tickets_.Redeem(request, clock_.Monotonic());
  if (!status.ok()) return status;
  for (const Offer& offer : offers_) {
    if (offer.buffer.value == request.buffer && offer.generation.value == request.generation) {
      return SendParts(offer.parts, socket);
    }
  }
  return absl::NotFoundError("nothing is offered for a ticket that was issued");
}

}  // namespace perigee
