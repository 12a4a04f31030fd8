#include "client/cli/run/progress.h"

#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace perigee {
namespace {

class RunProgressTest : public ::testing::Test {
 protected:
  RunProgress Make(bool terminal) {
    return RunProgress(1000, terminal, clock_, [this](const std::string& text) { out_ += text; });
  }
  FakeClock clock_;
  std::string out_;
};

TEST_F(RunProgressTest, AShortRunSaysNothing) {
  RunProgress progress = Make(false);
  progress.Update(1);
  EXPECT_EQ(out_, "");
}

TEST_F(RunProgressTest, ALineEveryFewSecondsInALog) {
  RunProgress progress = Make(false);
  clock_.Advance(absl::Seconds(3));
  progress.Update(10);
  clock_.Advance(absl::Seconds(1));
  progress.Update(20);
  clock_.Advance(absl::Seconds(2));
  progress.Update(30);
  EXPECT_EQ(out_, "iteration 10 of 1000\niteration 30 of 1000\n");
}

TEST_F(RunProgressTest, MessagesClearTheTerminalsLine) {
  RunProgress progress = Make(true);
  clock_.Advance(absl::Seconds(1));
  progress.Update(10);
  progress.Message("lost");
  progress.Message("found");
  EXPECT_EQ(out_, "\riteration 10 of 1000\r\033[Klost\nfound\n");
}

}  // namespace
}  // namespace perigee
