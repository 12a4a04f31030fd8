#include "kernels/host/available_memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace perigee {
namespace {

constexpr uint64_t kKiB = 1024;

// A copy of the files that the kernel would show, in a folder of the test's own.
class AvailableMemoryTest : public testing::Test {
 protected:
  AvailableMemoryTest() {
    std::string folder = testing::TempDir() + "/memory-XXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    paths_ = {folder + "/proc", folder + "/cgroup"};
    Write(paths_.proc + "/meminfo", "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 600 kB\n");
  }
  // Makes the folders on the way.
  static void Write(const std::string& path, const std::string& text) {
    for (size_t slash = path.find('/', 1); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      mkdir(path.substr(0, slash).c_str(), 0700);
    }
    std::ofstream(path) << text;
  }
  void Expect(uint64_t total_bytes, uint64_t available_bytes) {
    const HostMemory memory = ReadHostMemory(paths_);
    EXPECT_EQ(memory.total_bytes, total_bytes);
    EXPECT_EQ(memory.available_bytes, available_bytes);
  }

  HostMemoryPaths paths_;
};

TEST_F(AvailableMemoryTest, TheMachineWithoutGroups) { Expect(1000 * kKiB, 600 * kKiB); }

TEST_F(AvailableMemoryTest, EveryGroupUpToTheTopLimits) {
  Write(paths_.proc + "/self/cgroup", "0::/outer/inner\n");
  Write(paths_.cgroup + "/outer/inner/memory.max", "max\n");
  Write(paths_.cgroup + "/outer/inner/memory.current", "1024\n");
  Expect(1000 * kKiB, 600 * kKiB);
  Write(paths_.cgroup + "/outer/memory.max", "409600\n");
  Write(paths_.cgroup + "/outer/memory.current", "102400\n");
  Expect(400 * kKiB, 300 * kKiB);
  Write(paths_.cgroup + "/outer/inner/memory.max", "2048\n");
  Expect(2 * kKiB, 1 * kKiB);
}

TEST_F(AvailableMemoryTest, TheMountIsTheOwnGroupInAContainer) {
  Write(paths_.proc + "/self/cgroup", "0::/\n");
  Write(paths_.cgroup + "/memory.max", "204800\n");
  Write(paths_.cgroup + "/memory.current", "409600\n");
  Expect(200 * kKiB, 0);
}

TEST_F(AvailableMemoryTest, VersionOne) {
  Write(paths_.proc + "/self/cgroup", "5:cpu:/x\n4:memory,hugetlb:/job\n");
  Write(paths_.cgroup + "/memory/job/memory.limit_in_bytes", "102400\n");
  Write(paths_.cgroup + "/memory/job/memory.usage_in_bytes", "2048\n");
  Expect(100 * kKiB, 98 * kKiB);
}

TEST_F(AvailableMemoryTest, ThisMachineHasSome) {
  const HostMemory memory = ReadHostMemory();
  EXPECT_GT(memory.total_bytes, 0u);
  EXPECT_GT(memory.available_bytes, 0u);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
}

}  // namespace
}  // namespace perigee
