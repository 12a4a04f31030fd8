#include "worker/publication/token_ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

// A word of what has been asked for may have been lost on its way.
constexpr absl::Duration kAskAgain = absl::Seconds(1);
constexpr uint64_t kBitsOfWord = 64;

}  // namespace

TokenLedger::TokenLedger(const TokenScope& scope, const TokenKey& key, const Clock& clock,
                         std::function<void()> on_low)
    : scope_(scope), clock_(clock), on_low_(std::move(on_low)), signer_(key) {}

absl::Status TokenLedger::Grant(TokenHolder holder, const SerialRange& serials,
                                absl::Duration life) {
  if (serials.count == 0 || serials.count > kMaxSerialsOfRange || life <= absl::ZeroDuration() ||
      serials.first + serials.count < serials.first) {
    return absl::InvalidArgumentError(absl::StrCat("a grant has ", serials.count, " serials for ",
                                                   absl::FormatDuration(life), ", expected 1 to ",
                                                   kMaxSerialsOfRange, " for more than no time"));
  }
  std::lock_guard lock(mutex_);
  const absl::Duration now = clock_.Monotonic();
  RetireExpired(now);
  const auto after = ranges_.lower_bound(serials.first);
  if (after != ranges_.end() && after->second.serials == serials) return absl::OkStatus();
  const bool overlaps =
      (after != ranges_.end() && after->second.serials.overlaps(serials)) ||
      (after != ranges_.begin() && std::prev(after)->second.serials.overlaps(serials));
  if (overlaps) return absl::InvalidArgumentError("a grant has serials of another grant");
  Range& range = ranges_[serials.first];
  range.serials = serials;
  range.holder = holder;
  range.granted_at = now;
  range.life = life;
  range.marks.resize((serials.count + kBitsOfWord - 1) / kBitsOfWord);
  live_.push_back(&range);
  counts_.held += serials.count;
  if (holder == TokenHolder::kClients) return absl::OkStatus();
  own_.push_back(&range);
  undrawn_ += serials.count;
  low_ = serials.count / kTokenRefillDivisor;
  asked_at_ = -absl::InfiniteDuration();
  return absl::OkStatus();
}

void TokenLedger::RetireExpired(absl::Duration now) {
  const auto done = [&](Range* range) {
    const bool expired = now - range->granted_at >= range->life;
    if (!expired && range->spent < range->serials.count) return false;
    counts_.expired += range->serials.count - range->spent;
    range->marks = std::vector<uint64_t>();
    return true;
  };
  live_.erase(std::remove_if(live_.begin(), live_.end(), done), live_.end());
}

void TokenLedger::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
}

absl::StatusOr<std::string> TokenLedger::Draw(BufferId buffer) {
  PublicationToken token;
  token.scope = scope_;
  token.buffer = buffer;
  std::string bytes;
  bool low = false;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return absl::FailedPreconditionError("the generation of this ledger is over");
    const absl::Duration now = clock_.Monotonic();
    while (!own_.empty()) {
      Range& range = *own_.front();
      const bool expired = now - range.granted_at >= range.life;
      if (!expired && range.drawn < range.serials.count) {
        token.serial = range.serials.first + range.drawn++;
        token.expiry = range.life;
        bytes = signer_.Sign(token);
        --undrawn_;
        ++counts_.drawn;
        break;
      }
      undrawn_ -= range.serials.count - range.drawn;
      own_.pop_front();
    }
    low = TakeLow(now);
  }
  if (low && on_low_) on_low_();
  if (!bytes.empty()) return bytes;
  return absl::ResourceExhaustedError(
      "no publication token is left on this rank; more have been asked for");
}

bool TokenLedger::TakeLow(absl::Duration now) {
  if (undrawn_ > low_ || now - asked_at_ < kAskAgain) return false;
  asked_at_ = now;
  return true;
}

TokenRefusal TokenLedger::Examine(absl::string_view bytes, BufferId buffer, Range** range,
                                  uint64_t* serial) {
  const auto token = DecodePublicationToken(bytes);
  if (!token) return TokenRefusal::kForged;
  if (closed_ || token->scope.generation != scope_.generation) {
    return TokenRefusal::kStaleGeneration;
  }
  if (token->scope.rank != scope_.rank) return TokenRefusal::kWrongRank;
  if (token->scope != scope_ || !signer_.Verify(bytes)) return TokenRefusal::kForged;
  if (token->buffer != buffer) return TokenRefusal::kWrongBuffer;
  if (token->kind != TokenKind::kPublish) return TokenRefusal::kUnknown;
  const auto after = ranges_.upper_bound(token->serial);
  if (after == ranges_.begin()) return TokenRefusal::kUnknown;
  Range& found = std::prev(after)->second;
  if (!found.serials.contains(token->serial)) return TokenRefusal::kUnknown;
  const absl::Duration age = clock_.Monotonic() - found.granted_at;
  if (age >= std::min(found.life, token->expiry)) return TokenRefusal::kExpired;
  const uint64_t index = token->serial - found.serials.first;
  const bool spent = found.spent == found.serials.count ||
                     (found.marks[index / kBitsOfWord] >> index % kBitsOfWord & 1) != 0;
  if (spent) return TokenRefusal::kSpent;
  *range = &found;
  *serial = index;
  return TokenRefusal::kNone;
}

TokenRefusal TokenLedger::Check(absl::string_view token, BufferId buffer) {
  std::lock_guard lock(mutex_);
  Range* range = nullptr;
  uint64_t index = 0;
  return Examine(token, buffer, &range, &index);
}

TokenRefusal TokenLedger::Spend(absl::string_view token, BufferId buffer) {
  std::lock_guard lock(mutex_);
  Range* range = nullptr;
  uint64_t index = 0;
  const TokenRefusal refusal = Examine(token, buffer, &range, &index);
  if (refusal != TokenRefusal::kNone) return refusal;
  range->marks[index / kBitsOfWord] |= uint64_t{1} << index % kBitsOfWord;
  ++range->spent;
  ++counts_.spent;
  return TokenRefusal::kNone;
}

TokenCounts TokenLedger::counts() {
  std::lock_guard lock(mutex_);
  RetireExpired(clock_.Monotonic());
  return counts_;
}

}  // namespace perigee
