// A rank that is stopped, given up, and goes on when the others have formed the next generation: it
// still maps the memory of the old one, and must reach none of the new.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/device/process_group.h"

namespace perigee {
namespace {

constexpr size_t kRanks = 4;
constexpr uint64_t kMiB = uint64_t{1} << 20;
// Rounds that a rank has queued on the device when it is stopped: its kernels run on without it.
constexpr int32_t kAhead = 4;
constexpr absl::Duration kTimeout = absl::Seconds(3);

uint64_t Sum(const std::vector<uint64_t>& values) {
  return std::accumulate(values.begin(), values.end(), uint64_t{0});
}

struct Times {
  double leaving_ms = 0;       // survivors, from Abort
  uint64_t held_mib = 0;       // of the old generation, while the stopped rank maps it
  double released_in_ms = -1;  // after its end
};

class StoppedRankTest : public ProcessGroupTest {
 protected:
  // The ranks are in the middle of a loop. Stops one; the others leave and drop the generation.
  void StopInTheMiddle(size_t victim, Times& times);
  // The others form the next generation, use it, and fill its memory with canaries.
  void FormWithout(size_t victim, uint64_t extra);
  // The stopped rank goes on until its own error, then writes wherever it can.
  void LetItGoOn(size_t victim);
};

void StoppedRankTest::StopInTheMiddle(size_t victim, Times& times) {
  RankCommand loop = Command(RankVerb::kStartLoop);
  loop.count = kAhead;
  ExpectOk(All(), loop);
  processes_[victim]->Stop();
  RankCommand abort = Command(RankVerb::kAbort);
  abort.lost_rank = static_cast<int32_t>(victim);
  const std::vector<Answer> answers = OnAll(AllBut(victim), abort);
  for (const Answer& answer : answers) {
    EXPECT_EQ(answer.reply.code, static_cast<int32_t>(absl::StatusCode::kUnavailable))
        << answer.text();
    EXPECT_EQ(answer.reply.record.awaited_rank, abort.lost_rank);
  }
  times.leaving_ms = MostMs(answers);
  ExpectOk(AllBut(victim), Command(RankVerb::kDropAll));
}

void StoppedRankTest::FormWithout(size_t victim, uint64_t extra) {
  const Members survivors = AllBut(victim);
  ASSERT_NO_FATAL_FAILURE(Form(survivors, absl::Seconds(30), extra));
  ExpectOk(survivors, Command(RankVerb::kCheckRounds));
  ExpectOk(survivors, Command(RankVerb::kDropPath));
  ExpectOk(survivors, Command(RankVerb::kFill));
  ExpectOk(survivors, Command(RankVerb::kCheckFill));
}

void StoppedRankTest::LetItGoOn(size_t victim) {
  RankProcess& stopped = *processes_[victim];
  stopped.Continue();
  const Answer ended = stopped.Do(Command(RankVerb::kAwaitLoop));
  EXPECT_EQ(ended.reply.code, static_cast<int32_t>(absl::StatusCode::kDeadlineExceeded))
      << ended.text();
  const Answer scribbled = stopped.Do(Command(RankVerb::kScribble));
  EXPECT_TRUE(scribbled.ok()) << scribbled.text();
}

TEST_P(StoppedRankTest, AStoppedRank) {
  constexpr size_t kStops = 2;
  const uint64_t extra = extra_bytes(32 * kMiB);
  ASSERT_NO_FATAL_FAILURE(Start(kRanks));
  for (size_t victim = 1; victim <= kStops; ++victim) {
    SCOPED_TRACE(absl::StrCat("rank ", victim, " is stopped"));
    Times times;
    const Members survivors = AllBut(victim);
    const std::vector<uint64_t> before = FreeBytes();
    ASSERT_NO_FATAL_FAILURE(Form(All(), kTimeout, extra));
    ExpectOk(All(), Command(RankVerb::kCheckRounds));
    StopInTheMiddle(victim, times);
    const std::vector<uint64_t> dropped = FreeBytes();
    times.held_mib = (Sum(before) - Sum(dropped)) / kMiB;
    ASSERT_NO_FATAL_FAILURE(FormWithout(victim, extra));
    LetItGoOn(victim);
    // Not a byte of the new memory has changed.
    ExpectOk(survivors, Command(RankVerb::kCheckFill));
    ExpectOk(survivors, Command(RankVerb::kDropAll));
    processes_[victim]->Quit();
    if (on_device()) {
      // The old memory of all four ranks was still there, and goes with the process that mapped it.
      EXPECT_GE(Sum(before) - Sum(dropped), kRanks * extra);
      std::vector<uint64_t> released(devices(), 0);
      for (size_t rank = 0; rank < kRanks; ++rank) {
        uint64_t& bytes = released[DeviceOf(rank)];
        bytes = std::max(bytes, dropped[DeviceOf(rank)]) + extra;
      }
      times.released_in_ms = AwaitFree(released);
    }
    Print(absl::StrCat("ranks=", kRanks, " stopped=", victim,
                       " abort_to_return_ms=", times.leaving_ms,
                       on_device() ? absl::StrCat(" old_memory_held_mib=", times.held_mib,
                                                  " released_in_ms=", times.released_in_ms)
                                   : ""));
    ASSERT_FALSE(HasFailure());
    ASSERT_NO_FATAL_FAILURE(Replace(victim));
  }
  ASSERT_NO_FATAL_FAILURE(Form(All(), absl::Seconds(30), extra));
  ExpectOk(All(), Command(RankVerb::kCheckRounds));
  for (const auto& process : processes_) process->Quit();
}

INSTANTIATE_TEST_SUITE_P(Backends, StoppedRankTest, testing::Values("host", "cuda"),
                         BackendCaseName);

}  // namespace
}  // namespace perigee
