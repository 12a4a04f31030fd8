// What spending a publication token takes on the worker, from its 96 bytes to the mark in the
// bitmap; and drawing one. Nanoseconds.
//
//   bazel run //tests/bench:token_ledger_bench
#include <memory>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "kernels/common/check.h"
#include "worker/publication/token_ledger.h"

namespace perigee {
namespace {

constexpr uint64_t kSerials = 65536;
constexpr BufferId kBuffer(5);

class Rank {
 public:
  Rank() {
    key_.fill(7);
    ledger = std::make_unique<TokenLedger>(scope_, key_, RealClock(), nullptr);
  }
  // All tokens of the next range, signed.
  std::vector<std::string> NextTokens() {
    Grant(TokenHolder::kClients);
    TokenSigner signer(key_);
    PublicationToken token;
    token.scope = scope_;
    token.buffer = kBuffer;
    token.expiry = absl::Hours(1);
    std::vector<std::string> tokens;
    for (uint64_t i = 0; i < kSerials; ++i) {
      token.serial = last_ - kSerials + i;
      tokens.push_back(signer.Sign(token));
    }
    return tokens;
  }
  void Grant(TokenHolder holder) {
    PERIGEE_CHECK(ledger->Grant(holder, {last_, kSerials}, absl::Hours(1)).ok());
    last_ += kSerials;
  }

  std::unique_ptr<TokenLedger> ledger;

 private:
  const TokenScope scope_ = MakeTokenScope("tenants/default/groups/g", Generation(7), RankId(2));
  TokenKey key_;
  uint64_t last_ = 1;
};

void Spend(benchmark::State& state) {
  Rank rank;
  std::vector<std::string> tokens = rank.NextTokens();
  size_t next = 0;
  for (auto _ : state) {
    if (next == tokens.size()) {
      state.PauseTiming();
      tokens = rank.NextTokens();
      next = 0;
      state.ResumeTiming();
    }
    const TokenRefusal refusal = rank.ledger->Spend(tokens[next++], kBuffer);
    PERIGEE_CHECK(refusal == TokenRefusal::kNone);
  }
}
BENCHMARK(Spend);

void RefuseSpent(benchmark::State& state) {
  Rank rank;
  const std::string token = rank.NextTokens()[0];
  PERIGEE_CHECK(rank.ledger->Spend(token, kBuffer) == TokenRefusal::kNone);
  for (auto _ : state) {
    PERIGEE_CHECK(rank.ledger->Spend(token, kBuffer) == TokenRefusal::kSpent);
  }
}
BENCHMARK(RefuseSpent);

void DrawOne(benchmark::State& state) {
  Rank rank;
  uint64_t left = 0;
  for (auto _ : state) {
    if (left-- == 0) {
      state.PauseTiming();
      rank.Grant(TokenHolder::kWorker);
      left = kSerials - 1;
      state.ResumeTiming();
    }
    benchmark::DoNotOptimize(rank.ledger->Draw(kBuffer));
  }
}
BENCHMARK(DrawOne);

}  // namespace
}  // namespace perigee

BENCHMARK_MAIN();
