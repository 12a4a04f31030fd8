#include "proto/support/control_group.h"

#include <sched.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace perigee {
namespace {

class ControlGroupTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  ControlGroupLimits Read() const {
    return ReadControlGroupLimits((root_ / "proc").string(), (root_ / "cgroup").string());
  }

  // A folder of its own for each test.
  const std::filesystem::path root_ =
      std::filesystem::path(::testing::TempDir()) /
      ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(ControlGroupTest, WithoutFilesNothingLimits) {
  const ControlGroupLimits limits = Read();
  EXPECT_FALSE(limits.memory_bytes);
  EXPECT_FALSE(limits.free_bytes);
  EXPECT_FALSE(limits.cpus);
}

TEST_F(ControlGroupTest, TheTightestOfAllParentsHolds) {
  Write("proc/self/cgroup", "0::/a/b");
  Write("cgroup/a/b/memory.max", "max");
  Write("cgroup/a/b/cpu.max", "150000 100000");
  Write("cgroup/a/memory.max", "1000");
  Write("cgroup/a/memory.current", "400");
  Write("cgroup/a/cpu.max", "max 100000");
  Write("cgroup/memory.max", "5000");
  Write("cgroup/memory.current", "4900");
  const ControlGroupLimits limits = Read();
  EXPECT_EQ(limits.memory_bytes, 1000u);
  EXPECT_EQ(limits.free_bytes, 100u);
  EXPECT_EQ(limits.cpus, 1.5);
}

TEST_F(ControlGroupTest, AQuotaLimitsTheUsableCpus) {
  const int all = UsableCpus({});
  EXPECT_GE(all, 1);
  ControlGroupLimits limits;
  for (double cpus : {0.5, 1.0, 1.9}) {
    limits.cpus = cpus;
    EXPECT_EQ(UsableCpus(limits), 1) << cpus;
  }
  limits.cpus = all + 0.5;
  EXPECT_EQ(UsableCpus(limits), all);
  limits.cpus = 1e12;
  EXPECT_EQ(UsableCpus(limits), all);
}

TEST_F(ControlGroupTest, AnAffinityLimitsTheUsableCpus) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(UsableCpus({}), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST_F(ControlGroupTest, VersionOneIsReadToo) {
  Write("proc/self/cgroup", "5:cpu,cpuacct:/c\n4:memory:/m");
  Write("cgroup/memory/m/memory.limit_in_bytes", "2000");
  Write("cgroup/memory/m/memory.usage_in_bytes", "2500");
  Write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  Write("cgroup/cpu/c/cpu.cfs_quota_us", "200000");
  Write("cgroup/cpu/c/cpu.cfs_period_us", "100000");
  Write("cgroup/cpu/cpu.cfs_quota_us", "-1");
  Write("cgroup/cpu/cpu.cfs_period_us", "100000");
  const ControlGroupLimits limits = Read();
  EXPECT_EQ(limits.memory_bytes, 2000u);
  EXPECT_EQ(limits.free_bytes, 0u);
  EXPECT_EQ(limits.cpus, 2);
}

}  // namespace
}  // namespace perigee
