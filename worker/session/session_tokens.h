// A session's ledger of publication tokens and the messages that speak of it.
#ifndef PERIGEE_WORKER_SESSION_SESSION_TOKENS_H_
#define PERIGEE_WORKER_SESSION_SESSION_TOKENS_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/support/clock.h"
#include "proto/support/publication_token.h"
#include "proto/v1/command.pb.h"
#include "worker/publication/token_ledger.h"

namespace perigee {

// With the key and serials that the generation opens with. Where the command has none, nothing can
// be drawn or spent. INVALID_ARGUMENT: the key has another length, or the grant is none.
absl::StatusOr<std::unique_ptr<TokenLedger>> OpenTokenLedger(const TokenScope& scope,
                                                             const v1::OpenSessionCommand& command,
                                                             const Clock& clock,
                                                             std::function<void()> on_low);
// INVALID_ARGUMENT: it has no holder, or Grant refuses it.
absl::Status TakeGrant(TokenLedger& ledger, const v1::TokenGrant& grant);
v1::TokenCounts CountsOf(TokenLedger& ledger);

}  // namespace perigee

#endif  // PERIGEE_WORKER_SESSION_SESSION_TOKENS_H_
