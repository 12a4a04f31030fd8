// The publication tokens of this rank in one generation: which serials it was granted, and which of
// them are spent. A token is spent here and nowhere else, so that no call to the coordinator stands
// before a publication. The ledger dies with its generation.
//
//   granted --+--> drawn here, or issued to clients by the coordinator --> spent
//             +--> expired, with its range
//
// A range is the rank's own, from which Draw takes, or for the clients to whom the coordinator
// issues its serials: the two never meet.
#ifndef PERIGEE_WORKER_PUBLICATION_TOKEN_LEDGER_H_
#define PERIGEE_WORKER_PUBLICATION_TOKEN_LEDGER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/common/ids.h"
#include "proto/support/clock.h"
#include "proto/support/publication_token.h"
#include "worker/publication/token_refusal.h"

namespace perigee {

// Whom a range of serials is for.
enum class TokenHolder { kWorker, kClients };

// held = spent + expired + those that can still be spent.
struct TokenCounts {
  uint64_t held = 0;     // serials granted to this ledger
  uint64_t drawn = 0;    // of them, taken by Draw
  uint64_t spent = 0;    // of them
  uint64_t expired = 0;  // of them, not spent while they could be
};

// Thread-safe. No call waits for anything but other callers of the ledger.
class TokenLedger {
 public:
  static constexpr uint64_t kMaxSerialsOfRange = uint64_t{1} << 20;

  // `on_low` is called, from whichever thread draws, when the rank's own serials run low, and while
  // they stay low no more than once a second; it may be empty. `clock` outlives the ledger.
  TokenLedger(const TokenScope& scope, const TokenKey& key, const Clock& clock,
              std::function<void()> on_low);

  // Serials that are good for `life` from now. The same grant once more changes nothing.
  // INVALID_ARGUMENT: no serials, too many, no life, or some of them are of another grant.
  absl::Status Grant(TokenHolder holder, const SerialRange& serials, absl::Duration life);

  // The generation is over: from now on it lives nowhere, and every token is of another one.
  void Close();

  // A signed token for `buffer` out of the rank's own serials, none twice. RESOURCE_EXHAUSTED: none
  // is left until the next grant; FAILED_PRECONDITION: closed.
  absl::StatusOr<std::string> Draw(BufferId buffer);

  // Whether `token` could be spent on `buffer` now. What dates and places a token is looked at
  // first: it is only with this rank's and generation's tokens that a forged one can be told.
  TokenRefusal Check(absl::string_view token, BufferId buffer);
  // The same; and from here on it is spent, where it was good.
  TokenRefusal Spend(absl::string_view token, BufferId buffer);

  TokenCounts counts();

 private:
  struct Range {
    SerialRange serials;
    TokenHolder holder = TokenHolder::kWorker;
    absl::Duration granted_at;
    absl::Duration life;
    uint64_t drawn = 0;
    uint64_t spent = 0;
    std::vector<uint64_t> marks;  // a bit for each serial; empty once it is not needed any more
  };

  // With the mutex held. `range` is the token's, where there is no refusal.
  TokenRefusal Examine(absl::string_view bytes, BufferId buffer, Range** range, uint64_t* serial);
  void RetireExpired(absl::Duration now);
  bool TakeLow(absl::Duration now);

  const TokenScope scope_;
  const Clock& clock_;
  const std::function<void()> on_low_;

  std::mutex mutex_;  // of everything below
  bool closed_ = false;
  TokenSigner signer_;
  // Those that have expired stay, without their marks, so that their tokens are told from unknown
  // ones.
  std::map<uint64_t, Range> ranges_;  // by first serial
  std::vector<Range*> live_;          // in order of their grants
  std::deque<Range*> own_;            // of the rank's own, those that Draw may take from
  uint64_t undrawn_ = 0;              // serials of own_
  uint64_t low_ = 0;                  // undrawn_ at which more are wanted
  absl::Duration asked_at_ = -absl::InfiniteDuration();
  TokenCounts counts_;
};

}  // namespace perigee

#endif  // PERIGEE_WORKER_PUBLICATION_TOKEN_LEDGER_H_
