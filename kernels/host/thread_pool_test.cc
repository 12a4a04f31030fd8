#include "kernels/host/thread_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace perigee {
namespace {

TEST(ThreadPoolTest, EveryIterationRunsOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int64_t count : {0, 1, 3, 64, 1000}) {
      for (int64_t grain : {1, 7, 2000}) {
        std::vector<int> runs(count, 0);
        pool.ParallelFor(count, grain, [&](int64_t begin, int64_t end) {
          ASSERT_LT(begin, end);
          ASSERT_LE(end - begin, grain);
          for (int64_t i = begin; i < end; ++i) ++runs[i];
        });
        for (int run : runs) ASSERT_EQ(run, 1);
      }
    }
  }
}

// A loop that follows at once must not meet a straggler of the one before.
TEST(ThreadPoolTest, LoopsFollowEachOther) {
  ThreadPool pool(4);
  std::vector<int64_t> values(16, 0);
  for (int64_t round = 1; round <= 2000; ++round) {
    pool.ParallelFor(16, 1, [&](int64_t begin, int64_t) { values[begin] += round; });
  }
  for (int64_t value : values) EXPECT_EQ(value, 2000 * 2001 / 2);
}

TEST(ThreadPoolTest, OneThreadIsTheCaller) {
  ThreadPool pool(1);
  std::set<std::thread::id> ids;
  pool.ParallelFor(10, 1, [&](int64_t, int64_t) { ids.insert(std::this_thread::get_id()); });
  EXPECT_EQ(ids, std::set<std::thread::id>{std::this_thread::get_id()});
}

}  // namespace
}  // namespace perigee
