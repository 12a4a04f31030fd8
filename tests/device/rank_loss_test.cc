// A rank that never arrives and a rank that is killed: what the others, processes of their own, get
// told, how soon, and that they go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
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
  // All memory of the generation is free again, on every device.
  void ExpectFlat();
  void KillOneByOne(size_t ranks);
  void PrintCycles(size_t ranks) const;

  // Of each cycle of KillOneByOne.
  std::vector<double> reaped_ms_;    // the killed process, from the kill
  std::vector<double> leaving_ms_;   // survivors, from Abort
  std::vector<double> unmapped_ms_;  // the dead rank's memory, by the slowest survivor
  std::vector<double> released_ms_;  // that memory, after the last unmapping
  std::vector<double> dropped_ms_;   // all memory of the generation
  std::vector<double> mapped_ms_;    // the next generation's memory, by the slowest rank
  std::vector<std::vector<uint64_t>> free_bytes_;  // [cycles][devices]
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
  const absl::Time killed = absl::Now();
  processes_[victim]->Kill();
  reaped_ms_.push_back(absl::ToDoubleMilliseconds(absl::Now() - killed));
  RankCommand abort = Command(RankVerb::kAbort);
  abort.lost_rank = static_cast<int32_t>(victim);
  const std::vector<Answer> answers = OnAll(AllBut(victim), abort);
  for (const Answer& answer : answers) ExpectLost(answer, abort.lost_rank);
  leaving_ms_.push_back(MostMs(answers));
}

void RankLossTest::DropGeneration(size_t victim, uint64_t extra) {
  const Members survivors = AllBut(victim);
  ExpectOk(survivors, Command(RankVerb::kDropPath));
  // The memory of the dead rank is still there, and goes with the last mapping.
  std::vector<uint64_t> released(devices(), 0);  // nothing is asked of other devices
  released[DeviceOf(victim)] = FreeBytes()[DeviceOf(victim)] + extra;
  RankCommand unmap = Command(RankVerb::kUnmap);
  unmap.rank = static_cast<int32_t>(victim);
  unmapped_ms_.push_back(MostMs(ExpectOk(survivors, unmap)));
  if (on_device()) released_ms_.push_back(AwaitFree(released));
  ExpectOk(survivors, Command(RankVerb::kDropAll));
  if (on_device()) ExpectFlat();
  // The loss has cost none of them its context.
  RankCommand alone = Command(RankVerb::kWorkAlone);
  alone.geometry.ranks = 1;
  ExpectOk(survivors, alone);
}

void RankLossTest::ExpectFlat() {
  constexpr uint64_t kNoiseBytes = 8 * kMiB;
  // Flat from the second cycle on: in the first the survivors' contexts still grow to their size.
  // The killed process's context is missing on its device, so a cycle is held against the first in
  // which the same one was killed.
  const size_t ranks = processes_.size();
  const size_t cycle = free_bytes_.size();
  if (cycle > ranks) {
    std::vector<uint64_t> expected = free_bytes_[1 + (cycle - 1) % ranks];
    for (uint64_t& bytes : expected) bytes -= kNoiseBytes;
    dropped_ms_.push_back(AwaitFree(expected));
  }
  free_bytes_.push_back(FreeBytes());
}

// One rank is killed in each cycle, each in its turn; a new process takes its place in the next
// generation, on new memory.
void RankLossTest::KillOneByOne(size_t ranks) {
  const size_t cycles = on_device() ? 20 : 4;
  const uint64_t extra = extra_bytes(256 * kMiB);
  ASSERT_NO_FATAL_FAILURE(Start(ranks));
  // A bound that is missed ends nothing: the times of all cycles are printed.
  for (size_t cycle = 0; cycle < cycles; ++cycle) {
    SCOPED_TRACE(absl::StrCat("cycle ", cycle));
    const size_t victim = (cycle + 2) % ranks;
    ASSERT_NO_FATAL_FAILURE(Form(All(), absl::Seconds(30), extra));
    mapped_ms_.push_back(mapping_ms_);
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
  PrintCycles(ranks);
  for (const auto& process : processes_) process->Quit();
}

void RankLossTest::PrintCycles(size_t ranks) const {
  std::string numbers = absl::StrCat("ranks=", ranks, " cycles=", leaving_ms_.size());
  const auto add = [&numbers](const char* name, const std::vector<double>& values) {
    absl::StrAppend(&numbers, " ", name, "=[", absl::StrJoin(values, " "), "]");
  };
  add("abort_to_return_ms", leaving_ms_);
  add("reaped_ms", reaped_ms_);
  add("unmapped_ms", unmapped_ms_);
  add("mapped_ms", mapped_ms_);
  if (on_device()) {
    add("dead_ranks_memory_released_ms", released_ms_);
    add("all_released_ms", dropped_ms_);
    for (size_t device = 0; device < devices(); ++device) {
      std::vector<double> free_mib;
      for (const auto& cycle : free_bytes_) free_mib.push_back(cycle[device] / kMiB);
      add(absl::StrCat("free_mib_", device).c_str(), free_mib);
    }
  }
  Print(numbers);
}

TEST_P(RankLossTest, AKilledRank) { KillOneByOne(kRanks); }

// With PERIGEE_DEVICES=2 each has a device of its own.
TEST_P(RankLossTest, AKilledRankOfTwo) { KillOneByOne(2); }

INSTANTIATE_TEST_SUITE_P(Backends, RankLossTest, testing::Values("host", "cuda"), BackendCaseName);

}  // namespace
}  // namespace perigee
