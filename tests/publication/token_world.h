// Publication tokens of one group with nothing but their own parts: the coordinator's (keys,
// serials that clients are issued, a store) and each rank's ledger, with a network between them
// that loses, repeats and reorders, clocks of their own, and crashes. A slow and obvious record
// beside it says what each of them must answer.
#ifndef PERIGEE_TESTS_PUBLICATION_TOKEN_WORLD_H_
#define PERIGEE_TESTS_PUBLICATION_TOKEN_WORLD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "proto/support/publication_token.h"
#include "server/publication/issued_serials.h"
#include "server/publication/token_keys.h"
#include "server/store/store.h"
#include "tests/testing/fake_clock.h"
#include "worker/publication/token_ledger.h"

namespace perigee {

class TokenWorld {
 public:
  static constexpr int kRanks = 3;

  explicit TokenWorld(uint64_t seed);

  // One random command, with all that can be checked right after it.
  void Step();
  // What only the end shows: every grant is spendable or burnt.
  void CheckLedgers();

  // How often each thing has happened, so that a walk that shows nothing is found out.
  const std::map<std::string, uint64_t>& tally() const { return tally_; }

 private:
  struct Message {
    Generation generation;
    absl::optional<TokenKey> key;  // opens the generation
    TokenHolder holder = TokenHolder::kWorker;
    SerialRange serials;
  };
  struct HeldRange {
    SerialRange serials;
    TokenHolder holder = TokenHolder::kWorker;
    absl::Duration until;
  };
  struct Worker {
    FakeClock clock;
    std::unique_ptr<TokenLedger> ledger;  // null: no session
    Generation generation;
    std::vector<Message> inbox;
    // What the record says of the ledger.
    std::vector<HeldRange> held;
    std::set<uint64_t> spent;
    uint64_t drawn = 0;
  };
  // One that somebody was given, or has made.
  struct KnownToken {
    std::string bytes;
    PublicationToken says;
    bool genuine = true;
  };
  struct Request {
    std::string id;
    int rank = 0;
    uint64_t count = 0;
    BufferId buffer;
    std::vector<std::string> answer;  // empty: none has arrived
  };
  enum class Crash { kNone, kBefore, kAfter };

  uint64_t Roll(uint64_t bound) { return random_() % bound; }
  Crash RollCrash();

  void OpenGeneration();
  void Supply();
  void Issue();
  void Repeat();
  void Deliver();
  void Lose();
  void Draw();
  void Redeem();
  void Forge();
  void PassTime();
  void RestartWorker();
  void RestartCoordinator();

  // The store has handed the range out: nobody may have had any of it.
  void TakeNote(const SerialRange& serials);
  void Receive(Worker& worker, int rank, const Message& message);
  void Know(const std::string& bytes, bool genuine);
  TokenRefusal Expected(Worker& worker, int rank, const KnownToken& token, BufferId buffer);
  std::vector<std::string> Sign(const TokenIssue& issue, const std::string& salt) const;
  void CheckCounts(Worker& worker);
  void Count(const std::string& what) { ++tally_[what]; }

  std::mt19937_64 random_;
  const TokenKeys keys_{std::string(kMasterKeyBytes, 'm')};
  std::map<std::string, uint64_t> tally_;

  // On disk.
  std::unique_ptr<Store> store_;
  std::set<uint64_t> handed_out_;  // first serials of all ranges

  // The coordinator's, gone with it.
  bool knows_group_ = false;
  Generation generation_;
  std::string salt_;
  FakeClock clock_;
  std::vector<IssuedSerials> issuable_;

  std::vector<Worker> workers_{kRanks};
  std::vector<Request> requests_;
  uint64_t last_request_ = 0;
  std::vector<KnownToken> known_;
  std::set<uint64_t> given_;       // serials that a client has got or a rank has drawn
  std::set<uint64_t> ever_spent_;  // serials of all successes, of all generations
};

}  // namespace perigee

#endif  // PERIGEE_TESTS_PUBLICATION_TOKEN_WORLD_H_
