// A rank that never arrives and a rank that is killed: what the others, processes of their own, get
// told, how soon, and that they go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/layout/control_page.h"
#include "tests/device/process_group.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

constexpr size_t kRanks = 4;
constexpr uint64_t kMiB = uint64_t{1} << 20;

class RankLossTest : public ProcessGroupTest {
 protected:
  void MissOneArrival(size_t ranks);
  void ExpectMissed(const Answer& answer, int32_t rank);
  void ExpectLost(const Answer& answer, int32_t lost_rank);
  // The ranks are in the middle of a loop of rounds, `ahead` of them queued at a time; kills one
  // and tells the others.
  void KillInTheMiddle(size_t victim, int32_t ahead);
  // The survivors give up the generation.
  void DropGeneration(size_t victim, uint64_t extra);
  void AwaitFree(const Members& members, uint64_t free_bytes, std::vector<double>& waits_ms);

  // Of each cycle of AKilledRank.
  std::vector<double> leaving_ms_;   // survivors, from Abort
  std::vector<double> released_ms_;  // the dead rank's memory, after the last unmapping
  std::vector<double> dropped_ms_;   // all memory of the generation
  std::vector<uint64_t> free_bytes_;
};

constexpr int32_t kMissing = 2;
constexpr double kTimeoutMs = 500;

void RankLossTest::ExpectMissed(const Answer& answer, int32_t rank) {
  EXPECT_EQ(answer.reply.code, static_cast<int32_t>(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(answer.text(),
              HasSubstr("rank 2 did not arrive within 500ms; it is at the exit of sequence 2"));
  ASSERT_TRUE(answer.reply.has_record);
  const ErrorRecord& record = answer.reply.record;
  EXPECT_EQ(record.generation, generation_);
  EXPECT_EQ(record.sequence, 3u);
  EXPECT_EQ(record.operation, static_cast<uint32_t>(Operation::kDispatch));
  EXPECT_EQ(record.phase, static_cast<uint32_t>(Phase::kEntry));
  EXPECT_EQ(record.reason, static_cast<uint32_t>(AbortReason::kDeadline));
  EXPECT_EQ(record.rank, rank);
  EXPECT_EQ(record.awaited_rank, kMissing);
  EXPECT_EQ(record.expected, static_cast<int64_t>(BarrierPosition(3, Phase::kEntry)));
  EXPECT_EQ(record.seen, static_cast<int64_t>(BarrierPosition(2, Phase::kExit)));
  EXPECT_GE(answer.reply.milliseconds, kTimeoutMs - 2);
  if (on_device()) {
    EXPECT_LE(answer.reply.milliseconds, kTimeoutMs + SlackMs());
  }
}

void RankLossTest::MissOneArrival(size_t ranks) {
  ASSERT_NO_FATAL_FAILURE(Start(ranks));
  ASSERT_NO_FATAL_FAILURE(Form(All(), absl::Milliseconds(kTimeoutMs), extra_bytes(kMiB)));
  ExpectOk(All(), Command(RankVerb::kCheckRounds));  // sequences 1 and 2
  const Members others = AllBut(kMissing);
  const std::vector<Answer> answers = OnAll(others, Command(RankVerb::kDispatch));
  for (size_t i = 0; i < others.size(); ++i) {
    const auto rank = static_cast<int32_t>(i < kMissing ? i : i + 1);
    SCOPED_TRACE(absl::StrCat("rank ", rank));
    ExpectMissed(answers[i], rank);
  }
  Print(absl::StrCat("ranks=", ranks, " timeout_ms=", kTimeoutMs,
                     " most_ms_to_return=", MostMs(answers)));
  // The error has cost nobody the CUDA context: all work on, each for itself, while the old data
  // path is there and after it.
  RankCommand alone = Command(RankVerb::kWorkAlone);
  alone.geometry.ranks = 1;
  ExpectOk(All(), alone);
  ExpectOk(All(), Command(RankVerb::kDropAll));
  ExpectOk(All(), alone);
  // And together.
  ASSERT_NO_FATAL_FAILURE(Form(All(), absl::Seconds(30), extra_bytes(kMiB)));
  ExpectOk(All(), Command(RankVerb::kCheckRounds));
  for (const auto& process : processes_) process->Quit();
}

TEST_P(RankLossTest, ARankThatNeverArrives) { MissOneArrival(kRanks); }

TEST_P(RankLossTest, OneOfEightThatNeverArrives) { MissOneArrival(8); }

void RankLossTest::ExpectLost(const Answer& answer, int32_t lost_rank) {
  EXPECT_EQ(answer.reply.code, static_cast<int32_t>(absl::StatusCode::kUnavailable));
  EXPECT_THAT(answer.text(), HasSubstr(absl::StrCat("rank ", lost_rank, " is lost: ")));
  ASSERT_TRUE(answer.reply.has_record);
  EXPECT_EQ(answer.reply.record.generation, generation_);
  EXPECT_EQ(answer.reply.record.reason, static_cast<uint32_t>(AbortReason::kAborted));
  EXPECT_EQ(answer.reply.record.awaited_rank, lost_rank);
  if (on_device()) {
    EXPECT_LE(answer.reply.milliseconds, SlackMs());
  }
}

void RankLossTest::KillInTheMiddle(size_t victim, int32_t ahead) {
  RankCommand loop = Command(RankVerb::kStartLoop);
  loop.count = ahead;
  ExpectOk(All(), loop);
  processes_[victim]->Kill();
  RankCommand abort = Command(RankVerb::kAbort);
  abort.lost_rank = static_cast<int32_t>(victim);
  const std::vector<Answer> answers = OnAll(AllBut(victim), abort);
  for (const Answer& answer : answers) ExpectLost(answer, abort.lost_rank);
  leaving_ms_.push_back(MostMs(answers));
}

void RankLossTest::AwaitFree(const Members& members, uint64_t free_bytes,
                             std::vector<double>& waits_ms) {
  RankCommand await = Command(RankVerb::kAwaitMemory);
  await.free_bytes = free_bytes;
  waits_ms.push_back(MostMs(ExpectOk({members.front()}, await)));
}

void RankLossTest::DropGeneration(size_t victim, uint64_t extra) {
  const Members survivors = AllBut(victim);
  ExpectOk(survivors, Command(RankVerb::kDropPath));
  // The memory of the dead rank is still there, and goes with the last mapping.
  const uint64_t mapped = FreeBytes(survivors);
  RankCommand unmap = Command(RankVerb::kUnmap);
  unmap.rank = static_cast<int32_t>(victim);
  ExpectOk(survivors, unmap);
  if (on_device()) AwaitFree(survivors, mapped + extra, released_ms_);
  ExpectOk(survivors, Command(RankVerb::kDropAll));
  if (on_device() && free_bytes_.size() > 1) {
    // Flat from the second cycle on: in the first the survivors' contexts still grow to their size.
    constexpr uint64_t kNoiseBytes = 8 * kMiB;
    AwaitFree(survivors, free_bytes_[1] - kNoiseBytes, dropped_ms_);
  }
  free_bytes_.push_back(FreeBytes(survivors));
}

// One rank is killed in each cycle, each in its turn; a new process takes its place in the next
// generation, on new memory.
TEST_P(RankLossTest, AKilledRank) {
  const size_t cycles = on_device() ? 20 : 4;
  const uint64_t extra = extra_bytes(256 * kMiB);
  ASSERT_NO_FATAL_FAILURE(Start(kRanks));
  // A bound that is missed ends nothing: the times of all cycles are printed.
  for (size_t cycle = 0; cycle < cycles; ++cycle) {
    SCOPED_TRACE(absl::StrCat("cycle ", cycle));
    const size_t victim = (cycle + 2) % kRanks;
    ASSERT_NO_FATAL_FAILURE(Form(All(), absl::Seconds(30), extra));
    ExpectOk(All(), Command(RankVerb::kCheckRounds));
    KillInTheMiddle(victim, static_cast<int32_t>(cycle % 3 + 1));
    DropGeneration(victim, extra);
    ASSERT_FALSE(HasFatalFailure());
    ASSERT_NO_FATAL_FAILURE(Replace(victim));
  }
  ASSERT_NO_FATAL_FAILURE(Form(All(), absl::Seconds(30), extra));
  RankCommand rounds = Command(RankVerb::kCheckRounds);
  rounds.count = 3;
  ExpectOk(All(), rounds);
  std::string numbers = absl::StrCat("ranks=", kRanks, " cycles=", cycles, " abort_to_return_ms=[",
                                     absl::StrJoin(leaving_ms_, " "), "]");
  if (on_device()) {
    std::vector<uint64_t> free_mib;
    for (uint64_t bytes : free_bytes_) free_mib.push_back(bytes / kMiB);
    absl::StrAppend(&numbers, " dead_ranks_memory_released_ms=[", absl::StrJoin(released_ms_, " "),
                    "] all_released_ms=[", absl::StrJoin(dropped_ms_, " "), "] free_mib=[",
                    absl::StrJoin(free_mib, " "), "]");
  }
  Print(numbers);
  for (const auto& process : processes_) process->Quit();
}

INSTANTIATE_TEST_SUITE_P(Backends, RankLossTest, testing::Values("host", "cuda"), BackendCaseName);

}  // namespace
}  // namespace perigee
