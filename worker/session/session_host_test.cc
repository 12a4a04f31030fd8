// Sessions on the host backend: a real data path over memory that was exchanged through the
// sockets, the ranks as threads of this process.
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/host/host_backend.h"
#include "worker/publication/token_ledger.h"
#include "worker/testing/session_host_fixture.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

TEST_F(SessionHostTest, AWholeLayerComesOutRight) {
  const std::vector<ProgramOutcome> outcomes = group_.Execute(kLayerProgram);
  ExpectAllWell(outcomes);
  ExpectLayerIsRight();
  int64_t home_load = 0;
  int64_t balanced_load = 0;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const v1::PlanSummary& plan = outcomes[rank].progress.plan();
    home_load += plan.home_load();
    balanced_load += plan.balanced_load();
    EXPECT_EQ(plan.replicas(), layer_.plan().remote_stats[rank][0]);
    std::string dst = *group_.Read(rank, PlanTensorTarget("p", "dst"));
    EXPECT_EQ(dst, std::string(reinterpret_cast<const char*>(layer_.plan().dst[rank].data()),
                               dst.size()));
  }
  EXPECT_EQ(home_load, balanced_load);
  EXPECT_GT(outcomes[0].progress.plan().home_load(), outcomes[0].progress.plan().balanced_load());
}

TEST_F(SessionHostTest, IterationsAndSavedPlansGiveTheSame) {
  ExpectAllWell(group_.Execute(std::string(kLayerProgram) + " iterations: 5"));
  ExpectLayerIsRight();
  ExpectAllWell(group_.Execute(R"pb(
    operations { dispatch { hidden: "hidden" route_weights: "weights" saved_plan: "p" } }
    operations { run_experts { plan: "p" layer: 0 weights_version: 9 apply_route_weights: true } }
    operations { combine { plan: "p" output: "output" route_weights_output: "gathered" } }
  )pb"));
  ExpectLayerIsRight();
}

TEST_F(SessionHostTest, ACopyGoesOverTheRows) {
  const std::vector<ProgramOutcome> copied = group_.Execute(R"pb(
    operations { dispatch { hidden: "hidden" topk_experts: "topk" plan: "p" } }
    operations { probe_copy {} }
    operations { barrier {} }
    operations { probe_copy { to_next_rank: true } }
    keep_durations: true
    iterations: 2
  )pb");
  ExpectAllWell(copied);
  EXPECT_EQ(copied[0].progress.timings(3).operation(), "probe_copy");
  EXPECT_EQ(copied[0].progress.timings(3).duration_ns_size(), 2);
  for (const ProgramOutcome& outcome :
       group_.Execute(R"pb(operations { combine { plan: "p" output: "output" } })pb")) {
    EXPECT_EQ(outcome.status.reason(), "STALE_OBJECT");
    EXPECT_THAT(outcome.status.message(), HasSubstr("rows that a copy after sequence"));
  }
}

TEST_F(SessionHostTest, ARankThatCopiesNoRowsKeepsItsOwn) {
  const std::vector<ProgramOutcome> outcomes = group_.Execute(R"pb(
    operations { dispatch { hidden: "hidden" topk_experts: "topk" plan: "p" } }
    operations { probe_copy { rows: [ 1, 0, 2 ] } }
    operations { combine { plan: "p" output: "output" } }
  )pb");
  for (const int32_t rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].status.reason(), "STALE_OBJECT") << outcomes[rank].status.message();
  }
  EXPECT_EQ(outcomes[1].status.reason(), "DECLINED") << "it had rows to combine";
}

// The same layer by direct publication, with the ranks' own tokens, then with one of a client.
TEST_F(SessionHostTest, AWholeLayerByDirectPublicationComesOutRight) {
  std::string steps = kLayerProgram;
  steps = steps.substr(steps.find("operations { prefetch"));
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    TokenLedger& tokens = group_.session(rank).tokens();
    ASSERT_TRUE(tokens.Grant(TokenHolder::kWorker, {1, 100}, absl::Minutes(10)).ok());
  }
  constexpr char kPublication[] = R"pb(
    operations { prepare_dispatch { topk_experts: "topk" target: "t" } }
    operations { store_rows { target: "t" hidden: "hidden" } }
    operations { prepare_publication { target: "t" route_weights: "weights" $0 } }
    operations { publish { target: "t" plan: "p" } }
  )pb";
  ExpectAllWell(group_.Execute(absl::Substitute(kPublication, "") + steps));
  ExpectLayerIsRight();
  std::string tokens;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const auto token = group_.session(rank).tokens().Draw(BufferId(3));
    ASSERT_TRUE(token.ok()) << token.status();
    absl::StrAppend(&tokens, "tokens: \"", absl::CHexEscape(*token), "\" ");
  }
  ExpectAllWell(group_.Execute(absl::Substitute(kPublication, tokens) + steps));
  ExpectLayerIsRight();
  for (const ProgramOutcome& outcome : group_.Execute(absl::Substitute(kPublication, tokens))) {
    const std::string& reason = outcome.status.reason();
    EXPECT_TRUE(reason == "SPENT" || reason == "DECLINED") << outcome.status.message();
  }
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(group_.session(rank).tokens().counts().spent, 2u);
  }
  // The failed program has left nothing behind.
  ExpectAllWell(group_.Execute(kLayerProgram));
  ExpectLayerIsRight();
}

class SessionSourceTest : public SessionHostTest {
 protected:
  SessionSourceTest() : SessionHostTest(/*source_storage=*/true) {}
};

// The same layer fetched from an owner-sharded source, again and again, from tensors and from what
// lies there.
TEST_F(SessionSourceTest, AWholeLayerOutOfTheOwnersMemoryComesOutRight) {
  std::string steps = kLayerProgram;
  steps = steps.substr(steps.find("operations { prefetch"));
  constexpr char kSource[] = R"pb(
    operations { prepare_source { topk_experts: "topk" $0 source: "s" } }
    operations { materialise { source: "s" plan: "p" } }
  )pb";
  const std::string stored = R"(hidden: "hidden" route_weights: "weights")";
  ExpectAllWell(group_.Execute(absl::Substitute(kSource, stored) + steps + " iterations: 3"));
  ExpectLayerIsRight();
  ExpectAllWell(group_.Execute(absl::Substitute(kSource, "") + steps));
  ExpectLayerIsRight();
  ExpectAllWell(group_.Execute(R"(operations { materialise { source: "s" plan: "p" } })" + steps));
  ExpectLayerIsRight();
}

// One rank has not got its input: all leave at once, and the next program works.
TEST_F(SessionHostTest, ARankThatDeclinesIsNamedByAll) {
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    if (rank == 1) continue;
    std::vector<LayerTensor> others = layer_.Inputs(rank);
    others[0].target.set_tensor("other");
    Load(rank, {others[0]});
  }
  const std::vector<ProgramOutcome> outcomes = group_.Execute(R"pb(
    operations { barrier {} }
    operations { dispatch { hidden: "other" topk_experts: "topk" plan: "q" } }
    operations { barrier {} }
  )pb");
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const v1::RankStatus& status = outcomes[rank].status;
    EXPECT_EQ(status.code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
    EXPECT_EQ(status.reason(), rank == 1 ? "STALE_OBJECT" : "DECLINED") << status.message();
    EXPECT_EQ(status.rank(), rank);
    EXPECT_THAT(status.message(), HasSubstr(rank == 1 ? "'other'" : "rank 1 (workers/w1)"));
    EXPECT_EQ(outcomes[rank].progress.last_sequence(), 2u);
  }
  ExpectAllWell(group_.Execute(kLayerProgram));
  ExpectLayerIsRight();
}

TEST_F(SessionHostTest, WeightsOfAnotherVersionAreFoundByAll) {
  std::string program = kLayerProgram;
  for (size_t at = program.find("version: 9"); at != std::string::npos;
       at = program.find("version: 9")) {
    program.replace(at, 10, "version: 8");
  }
  bool found = false;
  for (const ProgramOutcome& outcome : group_.Execute(program)) {
    EXPECT_EQ(outcome.status.code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
    EXPECT_TRUE(outcome.status.reason() == "STALE_WEIGHTS" || outcome.status.reason() == "DECLINED")
        << outcome.status.message();
    found = found || outcome.status.reason() == "STALE_WEIGHTS";
    EXPECT_EQ(outcome.progress.last_sequence(), 3u);
  }
  EXPECT_TRUE(found);
  ExpectAllWell(group_.Execute(kLayerProgram));
  ExpectLayerIsRight();
}

// A backward of a layer whose slots another plan has taken since: refused, or fetched again.
TEST_F(SessionHostTest, StaleSlotsAreRefusedOrFetchedAgainAsTheBufferAsks) {
  constexpr char kForward[] = R"pb(
    operations { dispatch { hidden: "hidden" topk_experts: "topk" plan: "p" } }
    operations { prefetch_weights { plan: "p" layer: 0 weights_version: 9 } }
    operations { dispatch { hidden: "hidden" topk_experts: "other" plan: "q" } }
    operations { prefetch_weights { plan: "q" layer: 0 weights_version: 9 } }
  )pb";
  constexpr char kBack[] = R"pb(
    operations { dispatch { hidden: "hidden" route_weights: "weights" saved_plan: "p" } }
    operations { run_experts { plan: "p" layer: 0 weights_version: 9 apply_route_weights: true } }
    operations { combine { plan: "p" output: "output" route_weights_output: "gathered" } }
  )pb";
  for (int32_t rank = 0; rank < kRanks; ++rank) Load(rank, {OtherRoutes(rank)});
  ExpectAllWell(group_.Execute(kForward));
  bool stale = false;
  for (const ProgramOutcome& outcome : group_.Execute(kBack)) {
    EXPECT_NE(outcome.status.code(), 0);
    stale = stale || outcome.status.reason() == "STALE_WEIGHTS";
  }
  EXPECT_TRUE(stale);

  v1::BufferShape shape = layer_.shape();
  shape.set_refetch(true);
  SessionGroup again(kRanks, [](int32_t) { return CreateHostBackend(); });
  again.MakeBuffer(shape);
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    Load(again, rank, layer_.Inputs(rank));
    Load(again, rank, {OtherRoutes(rank)});
    Load(again, rank, layer_.Weights(rank));
  }
  ExpectAllWell(again.Execute(kForward));
  ExpectAllWell(again.Execute(kBack));
  ExpectLayerIsRight(again);
}

TEST_F(SessionHostTest, ABadRouteIsNamedByAll) {
  std::vector<LayerTensor> inputs = layer_.Inputs(1);
  const int32_t bad = 1000;
  std::memcpy(inputs[1].bytes.data() + 4 * (3 * 2 + 1), &bad, sizeof(bad));
  Load(1, {inputs[1]});
  for (const ProgramOutcome& outcome : group_.Execute(kLayerProgram)) {
    EXPECT_EQ(outcome.status.reason(), "BAD_ROUTE");
    EXPECT_THAT(outcome.status.message(), HasSubstr("1000"));
    EXPECT_EQ(outcome.status.operation_error().token(), 2);
    EXPECT_EQ(outcome.status.operation_error().k(), 1);
  }
  Load(1, layer_.Inputs(1));
  ExpectAllWell(group_.Execute(kLayerProgram));
  ExpectLayerIsRight();
}

TEST_F(SessionHostTest, ACancelStopsAllRanksTogether) {
  group_.StartProgram("operations { barrier {} } iterations: 1000000000");
  group_.session(2).Cancel(1);
  const std::vector<ProgramOutcome> outcomes = group_.AwaitOutcomes();
  for (const ProgramOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status.reason(), "CANCELLED");
    EXPECT_EQ(outcome.progress.last_sequence(), outcomes[0].progress.last_sequence());
  }
  ExpectAllWell(group_.Execute(kLayerProgram));
  ExpectLayerIsRight();
}

TEST_F(SessionHostTest, AnAbortEndsAWaitForALostRank) {
  // Rank 2 never runs the program: as if it had been killed.
  v1::ExecuteProgramCommand command;
  command.set_buffer(kTestBuffer);
  command.set_program_id(1);
  command.set_first_sequence(1);
  command.mutable_program()->add_operations()->mutable_barrier();
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<v1::RankStatus> reports;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(group_.session(rank)
                    .Execute(command, nullptr,
                             [&](const ProgramOutcome& outcome) {
                               std::lock_guard<std::mutex> lock(mutex);
                               reports.push_back(outcome.status);
                               changed.notify_all();
                             })
                    .ok());
  }
  for (int32_t rank = 0; rank < 2; ++rank) group_.session(rank).Abort({2}, "its lease ended");
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return reports.size() == 2; });
  for (const v1::RankStatus& report : reports) {
    EXPECT_EQ(report.code(), static_cast<int>(absl::StatusCode::kUnavailable));
    EXPECT_EQ(report.reason(), "GENERATION_ABORTED");
    EXPECT_EQ(report.message(),
              "barrier, sequence 1: rank 2 (workers/w2) is lost: its lease ended");
  }
  lock.unlock();
  for (int32_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(group_.session(rank).Close().ok());
}

TEST_F(SessionHostTest, ARankThatDoesNotComeIsNamedAtTheDeadline) {
  SessionGroup group(2, [](int32_t) { return CreateHostBackend(); });
  v1::AllocateBufferCommand commands[2];
  SmallLayer layer(2, seed_);
  for (int32_t rank = 0; rank < 2; ++rank) {
    commands[rank] = group.AllocateCommand(rank, layer.shape());
    commands[rank].mutable_buffer()->set_operation_timeout_ms(50);
    ASSERT_TRUE(group.session(rank).AllocateBuffer(commands[rank]).ok());
  }
  for (int32_t rank = 0; rank < 2; ++rank) {
    ASSERT_TRUE(group.session(rank).ConnectBuffer(group.ConnectCommand(rank)).ok());
  }
  v1::ExecuteProgramCommand command;
  command.set_buffer(kTestBuffer);
  command.set_program_id(1);
  command.set_first_sequence(1);
  command.mutable_program()->add_operations()->mutable_barrier();
  v1::RankStatus report;
  ASSERT_TRUE(group.session(0)
                  .Execute(command, nullptr,
                           [&](const ProgramOutcome& outcome) { report = outcome.status; })
                  .ok());
  while (!group.session(0).Close().ok()) std::this_thread::yield();
  EXPECT_EQ(report.reason(), "DEADLINE");
  EXPECT_EQ(report.operation_error().awaited_rank(), 1);
  EXPECT_THAT(report.message(), HasSubstr("rank 1 (workers/w1) did not arrive within 50ms"));
}

}  // namespace
}  // namespace perigee
