#include "tests/publication/token_world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/publication/token_signing.h"
#include "server/testing/memory_store.h"

namespace perigee {
namespace {

constexpr const char* kGroup = "tenants/default/groups/g";
constexpr uint64_t kSerials = 70;  // more than a word of marks
constexpr absl::Duration kLife = absl::Minutes(10);
constexpr size_t kMaxKnown = 4000;
constexpr size_t kMaxRequests = 200;

}  // namespace

TokenWorld::TokenWorld(uint64_t seed) : random_(seed), store_(std::make_unique<MemoryStore>()) {}

void TokenWorld::Step() {
  static constexpr struct {
    uint64_t weight;
    void (TokenWorld::*command)();
  } kCommands[] = {
      {2, &TokenWorld::OpenGeneration}, {30, &TokenWorld::Supply},
      {300, &TokenWorld::Issue},        {100, &TokenWorld::Repeat},
      {300, &TokenWorld::Deliver},      {10, &TokenWorld::Lose},
      {600, &TokenWorld::Draw},         {2000, &TokenWorld::Redeem},
      {100, &TokenWorld::Forge},        {200, &TokenWorld::PassTime},
      {1, &TokenWorld::RestartWorker},  {1, &TokenWorld::RestartCoordinator},
  };
  uint64_t all = 0;
  for (const auto& entry : kCommands) all += entry.weight;
  uint64_t roll = Roll(all);
  for (const auto& entry : kCommands) {
    if (roll < entry.weight) return (this->*entry.command)();
    roll -= entry.weight;
  }
}

TokenWorld::Crash TokenWorld::RollCrash() {
  const uint64_t roll = Roll(400);
  if (roll > 1) return Crash::kNone;
  Count(roll == 0 ? "crash before durability" : "crash after durability");
  return roll == 0 ? Crash::kBefore : Crash::kAfter;
}

void TokenWorld::TakeNote(const SerialRange& serials) {
  const auto after = handed_out_.lower_bound(serials.first);
  EXPECT_TRUE(after == handed_out_.end() || *after >= serials.first + serials.count);
  EXPECT_TRUE(after == handed_out_.begin() || *std::prev(after) + kSerials <= serials.first);
  EXPECT_EQ(serials.count, kSerials);
  handed_out_.insert(serials.first);
}

void TokenWorld::OpenGeneration() {
  const Crash crash = RollCrash();
  if (crash == Crash::kBefore) return RestartCoordinator();
  const std::string salt = absl::StrCat("salt ", random_());
  const auto opened = store_->OpenGeneration(salt, kRanks, kSerials);
  ASSERT_TRUE(opened.ok());
  EXPECT_GT(opened->generation, generation_);
  for (const SerialRange& serials : opened->serials) TakeNote(serials);
  if (crash == Crash::kAfter) return RestartCoordinator();
  knows_group_ = true;
  generation_ = opened->generation;
  salt_ = salt;
  issuable_.assign(kRanks, IssuedSerials());
  for (int rank = 0; rank < kRanks; ++rank) {
    workers_[rank].inbox.push_back({generation_,
                                    keys_.Derive(salt_, kGroup, generation_, RankId(rank)),
                                    TokenHolder::kWorker, opened->serials[rank]});
  }
  Count("generation opened");
}

void TokenWorld::Supply() {
  if (!knows_group_) return;
  const auto rank = static_cast<int>(Roll(kRanks));
  const bool for_clients = Roll(2) == 0;
  const Crash crash = RollCrash();
  if (crash == Crash::kBefore) return RestartCoordinator();
  const auto serials = store_->TakeSerials(kSerials);
  ASSERT_TRUE(serials.ok());
  TakeNote(*serials);
  if (crash == Crash::kAfter) return RestartCoordinator();
  const Message grant{generation_, absl::nullopt,
                      for_clients ? TokenHolder::kClients : TokenHolder::kWorker, *serials};
  workers_[rank].inbox.push_back(grant);
  // As soon as it is sent, not when it is answered: a token may come before its grant.
  if (for_clients) issuable_[rank].Add(*serials, clock_.Monotonic(), kLife);
  Count("serials granted");
}

std::vector<std::string> TokenWorld::Sign(const TokenIssue& issue, const std::string& salt) const {
  const v1::IssueTokensResponse signed_tokens =
      SignIssue(issue, keys_.Derive(salt, issue.group, issue.generation, issue.rank));
  return {signed_tokens.tokens().begin(), signed_tokens.tokens().end()};
}

void TokenWorld::Issue() {
  if (!knows_group_) return;
  if (requests_.size() >= kMaxRequests) requests_.erase(requests_.begin());
  Request& request = requests_.emplace_back();
  request.id = absl::StrCat("request ", ++last_request_);
  request.rank = static_cast<int>(Roll(kRanks));
  request.count = 1 + Roll(4);
  request.buffer = BufferId(1 + Roll(2));
  const auto serials = issuable_[request.rank].Take(request.count, clock_.Monotonic());
  if (!serials) return requests_.pop_back();
  const Crash crash = RollCrash();
  if (crash == Crash::kBefore) return RestartCoordinator();
  const TokenIssue issue{request.id,     "",       kGroup, generation_, RankId(request.rank),
                         request.buffer, *serials, kLife};
  ASSERT_TRUE(store_->RecordIssue(issue, clock_.Wall(), absl::InfinitePast()).ok());
  if (crash == Crash::kAfter) return RestartCoordinator();
  if (Roll(10) == 0) return Count("answer lost");
  request.answer = Sign(issue, salt_);
  for (uint64_t i = 0; i < serials->count; ++i) {
    EXPECT_TRUE(given_.insert(serials->first + i).second) << "a serial was given twice";
    Know(request.answer[i], true);
  }
  Count("tokens issued");
}

// A call that is made again gets what it got, from whichever coordinator; or, where nothing was put
// down, nothing.
void TokenWorld::Repeat() {
  if (requests_.empty()) return;
  Request& request = requests_[Roll(requests_.size())];
  const auto found = store_->FindIssue(request.id);
  ASSERT_TRUE(found.ok());
  if (!*found) {
    EXPECT_TRUE(request.answer.empty()) << "given away before it was durable";
    return;
  }
  const std::vector<std::string> answer = Sign((*found)->issue, (*found)->salt);
  if (!request.answer.empty()) {
    EXPECT_EQ(answer, request.answer);
    return Count("answer repeated");
  }
  request.answer = answer;
  for (size_t i = 0; i < answer.size(); ++i) {
    EXPECT_TRUE(given_.insert((*found)->issue.serials.first + i).second) << "given twice";
    Know(answer[i], true);
  }
  Count("lost answer got later");
}

void TokenWorld::Know(const std::string& bytes, bool genuine) {
  // The oldest half goes.
  if (known_.size() >= kMaxKnown) known_.erase(known_.begin(), known_.begin() + kMaxKnown / 2);
  known_.push_back({bytes, *DecodePublicationToken(bytes), genuine});
}

void TokenWorld::Deliver() {
  const auto rank = static_cast<int>(Roll(kRanks));
  Worker& worker = workers_[rank];
  if (worker.inbox.empty()) return;
  const size_t index = Roll(worker.inbox.size());
  const Message message = worker.inbox[index];
  if (Roll(3) != 0) {
    worker.inbox.erase(worker.inbox.begin() + static_cast<std::ptrdiff_t>(index));
  } else {
    Count("delivered and kept to come again");
  }
  Receive(worker, rank, message);
}

// As a worker's command handler: a session of a newer generation takes the place of an older one,
// and what is for another generation than the one that lives is refused.
void TokenWorld::Receive(Worker& worker, int rank, const Message& message) {
  if (message.key && (worker.ledger == nullptr || worker.generation < message.generation)) {
    // Grants of an earlier process of this worker must not be taken for this one's: the coordinator
    // opens no generation twice.
    if (message.generation <= worker.generation) return;
    worker.ledger =
        std::make_unique<TokenLedger>(MakeTokenScope(kGroup, message.generation, RankId(rank)),
                                      *message.key, worker.clock, nullptr);
    worker.generation = message.generation;
    worker.held.clear();
    worker.spent.clear();
    worker.drawn = 0;
  } else if (worker.ledger == nullptr || worker.generation != message.generation) {
    return Count("grant of another generation");
  }
  EXPECT_TRUE(worker.ledger->Grant(message.holder, message.serials, kLife).ok());
  const bool again = std::any_of(worker.held.begin(), worker.held.end(), [&](const auto& range) {
    return range.serials == message.serials;
  });
  if (again) return Count("grant delivered twice");
  worker.held.push_back({message.serials, message.holder, worker.clock.Monotonic() + kLife});
}

void TokenWorld::Lose() {
  Worker& worker = workers_[Roll(kRanks)];
  if (worker.inbox.empty()) return;
  worker.inbox.erase(worker.inbox.begin() + static_cast<std::ptrdiff_t>(Roll(worker.inbox.size())));
  Count("grant lost");
}

void TokenWorld::Draw() {
  Worker& worker = workers_[Roll(kRanks)];
  if (worker.ledger == nullptr) return;
  const auto token = worker.ledger->Draw(BufferId(1 + Roll(2)));
  if (!token.ok()) {
    EXPECT_TRUE(absl::IsResourceExhausted(token.status()));
    return Count("nothing left to draw");
  }
  ++worker.drawn;
  const uint64_t serial = DecodePublicationToken(*token)->serial;
  EXPECT_TRUE(given_.insert(serial).second) << "drawn, and given before";
  Know(*token, true);
  Count("token drawn");
}

// Reasons in their order, each by looking at everything there is.
TokenRefusal TokenWorld::Expected(Worker& worker, int rank, const KnownToken& token,
                                  BufferId buffer) {
  if (token.says.scope.generation != worker.generation) return TokenRefusal::kStaleGeneration;
  if (token.says.scope.rank != RankId(rank)) return TokenRefusal::kWrongRank;
  if (!token.genuine) return TokenRefusal::kForged;
  if (token.says.buffer != buffer) return TokenRefusal::kWrongBuffer;
  for (const HeldRange& range : worker.held) {
    if (!range.serials.contains(token.says.serial)) continue;
    if (worker.clock.Monotonic() >= range.until) return TokenRefusal::kExpired;
    return worker.spent.count(token.says.serial) > 0 ? TokenRefusal::kSpent : TokenRefusal::kNone;
  }
  return TokenRefusal::kUnknown;
}

void TokenWorld::Redeem() {
  if (known_.empty()) return;
  // Mostly of the newest: the others are of generations that are over.
  const size_t among = Roll(4) == 0 ? known_.size() : std::min<size_t>(known_.size(), 300);
  const KnownToken& token = known_[known_.size() - 1 - Roll(among)];
  const int rank = Roll(8) == 0 ? static_cast<int>(Roll(kRanks))
                                : std::clamp(token.says.scope.rank.value, 0, kRanks - 1);
  Worker& worker = workers_[rank];
  if (worker.ledger == nullptr) return;
  const BufferId buffer = Roll(8) == 0 ? BufferId(1 + Roll(3)) : token.says.buffer;
  const TokenRefusal expected = Expected(worker, rank, token, buffer);
  const TokenRefusal checked = worker.ledger->Check(token.bytes, buffer);
  EXPECT_EQ(checked, expected) << WordFor(checked) << " instead of " << WordFor(expected);
  const TokenRefusal refusal = worker.ledger->Spend(token.bytes, buffer);
  EXPECT_EQ(refusal, expected) << WordFor(refusal) << " instead of " << WordFor(expected);
  Count(refusal == TokenRefusal::kNone ? "success" : WordFor(refusal));
  if (refusal != TokenRefusal::kNone) return;
  EXPECT_TRUE(ever_spent_.insert(token.says.serial).second) << "two successes for one token";
  worker.spent.insert(token.says.serial);
}

// Some bits of a token are changed, or it is signed with the key of another rank.
void TokenWorld::Forge() {
  if (known_.empty()) return;
  KnownToken token = known_[Roll(known_.size())];
  if (!token.genuine) return;
  if (Roll(3) == 0) {
    const TokenKey key = keys_.Derive(salt_, kGroup, token.says.scope.generation,
                                      RankId((token.says.scope.rank.value + 1) % kRanks));
    token.bytes = TokenSigner(key).Sign(token.says);
  } else {
    const size_t places[] = {8, 17, 24, 40, 41, 57, 64, 80, 95};
    const size_t place = places[Roll(std::size(places))];
    token.bytes[place] = static_cast<char>(token.bytes[place] ^ (1 << Roll(8)));
  }
  Know(token.bytes, false);
}

void TokenWorld::PassTime() {
  // Each side's clock goes at a rate of its own.
  const auto some = [&] { return absl::Milliseconds(static_cast<int64_t>(Roll(20000))); };
  clock_.Advance(some());
  for (Worker& worker : workers_) {
    worker.clock.Advance(some());
    if (worker.ledger != nullptr) CheckCounts(worker);
  }
}

void TokenWorld::RestartWorker() {
  workers_[Roll(kRanks)].ledger.reset();
  Count("worker restarted");
}

// What it knew is gone: the group, how much of its serials was issued. What it had put down stays.
void TokenWorld::RestartCoordinator() {
  knows_group_ = false;
  issuable_.clear();
  Count("coordinator restarted");
  OpenGeneration();
}

void TokenWorld::CheckCounts(Worker& worker) {
  uint64_t held = 0, spendable = 0;
  for (const HeldRange& range : worker.held) {
    held += range.serials.count;
    if (worker.clock.Monotonic() >= range.until) continue;
    for (uint64_t i = 0; i < range.serials.count; ++i) {
      if (worker.spent.count(range.serials.first + i) == 0) ++spendable;
    }
  }
  const TokenCounts counts = worker.ledger->counts();
  EXPECT_EQ(counts.held, held);
  EXPECT_EQ(counts.drawn, worker.drawn);
  EXPECT_EQ(counts.spent, worker.spent.size());
  EXPECT_EQ(counts.held, counts.spent + counts.expired + spendable)
      << "neither spendable nor burnt";
}

void TokenWorld::CheckLedgers() {
  for (Worker& worker : workers_) {
    if (worker.ledger != nullptr) CheckCounts(worker);
  }
}

}  // namespace perigee
