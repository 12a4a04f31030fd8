#include "worker/attach/attach_ticket_book.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/layout/abi.h"
#include "proto/local/command_page.h"
#include "proto/local/same_ticket.h"

namespace perigee {
namespace {

absl::Status CheckEqual(absl::string_view what, uint64_t carried, uint64_t expected) {
  if (carried == expected) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the request carries ", what, " ", carried, ", expected ", expected));
}

absl::Status CheckScope(const AttachRequest& request, const AttachScope& scope) {
  absl::Status status = CheckEqual("data-path ABI", request.abi, kDataPathAbi);
  if (status.ok()) status = CheckEqual("page version", request.page_version, kCommandPageVersion);
  if (status.ok()) status = CheckEqual("generation", request.generation, scope.generation.value);
  if (status.ok()) status = CheckEqual("buffer", request.buffer, scope.buffer.value);
  if (status.ok()) {
    status = CheckEqual("rank", static_cast<uint32_t>(request.rank),
                        static_cast<uint32_t>(scope.rank.value));
  }
  if (!status.ok()) return status;
  if (request.group_hash == scope.group_hash && request.incarnation == scope.incarnation) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError("the request is for another group or worker");
}

}  // namespace

void AttachTicketBook::Issue(uint64_t attachment, const AttachScope& scope, const Ticket& ticket,
                             absl::Duration expires_at) {
  entries_.push_back({attachment, scope, ticket, expires_at, false});
}

void AttachTicketBook::Revoke(uint64_t attachment) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.attachment == attachment; });
}

AttachTicketBook::Redeemed AttachTicketBook::Redeem(const AttachRequest& request,
                                                    absl::Duration now) {
  Entry* found = nullptr;
  for (Entry& entry : entries_) {
    if (SameTicket(entry.ticket, request.ticket)) found = &entry;
  }
  if (!found) return {absl::PermissionDeniedError("unknown ticket"), absl::nullopt};
  if (found->spent) return {absl::FailedPreconditionError("the ticket is spent"), absl::nullopt};
  found->spent = true;
  if (now >= found->expires_at) {
    return {absl::DeadlineExceededError("the ticket has expired"), found->attachment};
  }
  return {CheckScope(request, found->scope), found->attachment};
}

std::vector<uint64_t> AttachTicketBook::TakeExpired(absl::Duration now) {
  std::vector<uint64_t> expired;
  for (Entry& entry : entries_) {
    if (entry.spent || now < entry.expires_at) continue;
    entry.spent = true;
    expired.push_back(entry.attachment);
  }
  return expired;
}

absl::Duration AttachTicketBook::NextExpiry() const {
  absl::Duration next = absl::InfiniteDuration();
  for (const Entry& entry : entries_) {
    if (!entry.spent) next = std::min(next, entry.expires_at);
  }
  return next;
}

}  // namespace perigee
