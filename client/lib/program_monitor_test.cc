#include "client/lib/program_monitor.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

v1::ExecuteProgramResponse Progress(int rank, int iterations, int64_t total_ns, int64_t min_ns,
                                    int64_t max_ns) {
  v1::ExecuteProgramResponse message;
  v1::ProgramProgress* progress = message.add_progress();
  progress->set_rank(rank);
  progress->set_iterations_done(iterations);
  v1::OperationTiming* timing = progress->add_timings();
  timing->set_operation("dispatch");
  timing->set_count(iterations);
  timing->set_total_ns(total_ns);
  timing->set_min_ns(min_ns);
  timing->set_max_ns(max_ns);
  progress->mutable_plan()->set_balanced_load(100 + rank);
  return message;
}

TEST(ProgramMonitorTest, CountsWhatEveryRankHasDone) {
  ProgramMonitor monitor(2);
  EXPECT_EQ(monitor.iterations_done(), 0);
  monitor.Update(Progress(0, 5, 50, 8, 12));
  EXPECT_EQ(monitor.iterations_done(), 0) << "rank 1 has not been heard";
  monitor.Update(Progress(1, 3, 33, 9, 13));
  EXPECT_EQ(monitor.iterations_done(), 3);
  EXPECT_EQ(monitor.plans()[1].balanced_load(), 101);
}

TEST(ProgramMonitorTest, ADeadProgramsPartStaysCounted) {
  ProgramMonitor monitor(1);
  monitor.Update(Progress(0, 5, 50, 8, 12));
  monitor.StartNext();
  EXPECT_EQ(monitor.iterations_done(), 5);
  monitor.Update(Progress(0, 2, 30, 7, 23));
  EXPECT_EQ(monitor.iterations_done(), 7);
  const v1::OperationTiming sum = monitor.timings()[0][0];
  EXPECT_EQ(sum.count(), 7);
  EXPECT_EQ(sum.total_ns(), 80);
  EXPECT_EQ(sum.min_ns(), 7);
  EXPECT_EQ(sum.max_ns(), 23);
}

TEST(ProgramMonitorTest, KeptDurationsComeInOrder) {
  const auto progress = [](std::vector<int64_t> durations_ns) {
    v1::ExecuteProgramResponse message = Progress(0, 2, 30, 7, 23);
    message.mutable_progress(0)->mutable_timings(0)->mutable_duration_ns()->Add(
        durations_ns.begin(), durations_ns.end());
    return message;
  };
  ProgramMonitor monitor(1);
  monitor.Update(progress({7, 23}));
  monitor.StartNext();
  monitor.Update(progress({9, 8}));
  EXPECT_THAT(monitor.timings()[0][0].duration_ns(), testing::ElementsAre(7, 23, 9, 8));
}

TEST(ProgramMonitorTest, TimesOfIterationsComeInOrder) {
  const auto progress = [](int rank, std::vector<int64_t> times_ns) {
    v1::ExecuteProgramResponse message = Progress(rank, 2, 0, 0, 0);
    message.mutable_progress(0)->mutable_iteration_ns()->Add(times_ns.begin(), times_ns.end());
    return message;
  };
  ProgramMonitor monitor(2);
  monitor.Update(progress(0, {7, 23}));
  monitor.StartNext();
  monitor.Update(progress(0, {9}));
  monitor.Update(progress(1, {5}));
  EXPECT_THAT(monitor.iterations_ns(),
              testing::ElementsAre(testing::ElementsAre(7, 23, 9), testing::ElementsAre(5)));
}

TEST(ProgramMonitorTest, IgnoresRanksItDoesNotHave) {
  ProgramMonitor monitor(1);
  monitor.Update(Progress(3, 5, 50, 8, 12));
  monitor.Update(Progress(-1, 5, 50, 8, 12));
  EXPECT_EQ(monitor.iterations_done(), 0);
}

}  // namespace
}  // namespace perigee
