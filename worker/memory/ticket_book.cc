#include "worker/memory/ticket_book.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/layout/abi.h"
#include "proto/local/same_ticket.h"

namespace perigee {
namespace {

absl::Status Stale(absl::string_view what, uint64_t carried, uint64_t expected) {
  return absl::FailedPreconditionError(
      absl::StrCat("the request carries ", what, " ", carried, ", the ticket is for ", expected));
}

absl::Status CheckRequester(const DescriptorRequest& request, const PeerTicket& peer) {
  if (request.requester_rank == peer.rank.value &&
      request.requester_incarnation == peer.incarnation) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "rank ", request.requester_rank, " presented the ticket of rank ", peer.rank.value));
}

absl::Status CheckScope(const DescriptorRequest& request, const ExportScope& scope) {
  if (request.abi != kDataPathAbi) return Stale("data-path ABI", request.abi, kDataPathAbi);
  if (request.generation != scope.generation.value) {
    return Stale("generation", request.generation, scope.generation.value);
  }
  if (request.buffer != scope.buffer.value) {
    return Stale("buffer", request.buffer, scope.buffer.value);
  }
  if (request.group_hash != scope.group_hash || request.exporter_rank != scope.rank.value ||
      request.exporter_incarnation != scope.incarnation) {
    return absl::FailedPreconditionError("the request is for another worker's descriptors");
  }
  return absl::OkStatus();
}

}  // namespace

void TicketBook::Issue(const ExportScope& scope, const std::vector<PeerTicket>& tickets,
                       absl::Duration expires_at) {
  for (const PeerTicket& peer : tickets) entries_.push_back({scope, peer, expires_at, false});
}

void TicketBook::Revoke(BufferId buffer, Generation generation) {
  const auto dead = [&](const Entry& entry) {
    return entry.scope.buffer == buffer && entry.scope.generation == generation;
  };
  entries_.erase(std::remove_if(entries_.begin(), entries_.end(), dead), entries_.end());
}

absl::Status TicketBook::Redeem(const DescriptorRequest& request, absl::Duration now) {
  Entry* found = nullptr;
  for (Entry& entry : entries_) {
    if (SameTicket(entry.peer.ticket, request.ticket)) found = &entry;
  }
  if (!found) return absl::PermissionDeniedError("unknown ticket");
  if (found->spent) return absl::FailedPreconditionError("the ticket is spent");
  found->spent = true;
  if (now >= found->expires_at) return absl::DeadlineExceededError("the ticket has expired");
  absl::Status status = CheckRequester(request, found->peer);
  if (status.ok()) status = CheckScope(request, found->scope);
  return status;
}

}  // namespace perigee
