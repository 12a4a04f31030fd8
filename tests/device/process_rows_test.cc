// Rows, weights and sums between ranks that are processes, as workers are.
#include <gtest/gtest.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/device/process_group.h"

namespace perigee {
namespace {

constexpr int32_t kRounds = 10;

class ProcessRowsTest : public ProcessGroupTest {
 protected:
  // What each round must give is fixed, to the bit: so all rounds give the same.
  void RunRounds(size_t ranks) {
    ASSERT_NO_FATAL_FAILURE(Start(ranks));
    ASSERT_NO_FATAL_FAILURE(Form(All(), absl::Seconds(30), extra_bytes(1 << 20)));
    RankCommand rounds = Command(RankVerb::kCheckRounds);
    rounds.count = kRounds;
    const std::vector<Answer> answers = ExpectOk(All(), rounds);
    Print(absl::StrCat("ranks=", ranks, " rounds=", kRounds,
                       " ms_per_round=", MostMs(answers) / kRounds));
    for (const auto& process : processes_) process->Quit();
  }
};

TEST_P(ProcessRowsTest, RowsCrossProcesses) { RunRounds(4); }

TEST_P(ProcessRowsTest, RowsCrossEightProcesses) { RunRounds(8); }

INSTANTIATE_TEST_SUITE_P(Backends, ProcessRowsTest, testing::Values("host", "cuda"),
                         BackendCaseName);

}  // namespace
}  // namespace perigee
