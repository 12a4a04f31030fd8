#include "worker/session/session_tokens.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/random.h"

namespace perigee {

absl::StatusOr<std::unique_ptr<TokenLedger>> OpenTokenLedger(const TokenScope& scope,
                                                             const v1::OpenSessionCommand& command,
                                                             const Clock& clock,
                                                             std::function<void()> on_low) {
  const bool granted = command.has_tokens();
  const std::string bytes = granted ? command.tokens().key() : RandomBytes(kTokenKeyBytes);
  if (bytes.size() != kTokenKeyBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the key of publication tokens has ", bytes.size(), " bytes, expected ", kTokenKeyBytes));
  }
  TokenKey key;
  std::copy(bytes.begin(), bytes.end(), key.begin());
  auto ledger = std::make_unique<TokenLedger>(scope, key, clock, std::move(on_low));
  if (!granted) return ledger;
  absl::Status status = TakeGrant(*ledger, command.tokens());
  if (!status.ok()) return status;
  return ledger;
}

absl::Status TakeGrant(TokenLedger& ledger, const v1::TokenGrant& grant) {
  if (grant.holder() != v1::TokenGrant::WORKER && grant.holder() != v1::TokenGrant::CLIENTS) {
    return absl::InvalidArgumentError("a grant of publication tokens says not whom it is for");
  }
  const TokenHolder holder =
      grant.holder() == v1::TokenGrant::WORKER ? TokenHolder::kWorker : TokenHolder::kClients;
  return ledger.Grant(
      holder, {grant.first_serial(), grant.count()},
      absl::Seconds(grant.life().seconds()) + absl::Nanoseconds(grant.life().nanos()));
}

v1::TokenCounts CountsOf(TokenLedger& ledger) {
  const TokenCounts counts = ledger.counts();
  v1::TokenCounts message;
  message.set_held(counts.held);
  message.set_drawn(counts.drawn);
  message.set_spent(counts.spent);
  message.set_expired(counts.expired);
  return message;
}

}  // namespace perigee
