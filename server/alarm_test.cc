#include "server/alarm.h"

#include <condition_variable>
#include <mutex>

#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace perigee {
namespace {

class AlarmTest : public ::testing::Test {
 protected:
  void Ring() {
    std::lock_guard lock(mutex);
    ++rings;
    rang.notify_all();
  }
  void AwaitRings(int count) {
    std::unique_lock lock(mutex);
    rang.wait(lock, [&] { return rings >= count; });
    EXPECT_EQ(rings, count);
  }

  std::mutex mutex;
  std::condition_variable rang;
  int rings = 0;
  FakeClock clock;
  Alarm alarm{clock, [this] { Ring(); }};
};

TEST_F(AlarmTest, RingsOncePerDeadlineWhenTheClockHasReachedIt) {
  for (int i = 1; i <= 3; ++i) {
    alarm.SetAtLatest(clock.Monotonic() + absl::Seconds(10));
    clock.Advance(absl::Seconds(10) - absl::Nanoseconds(1));
    alarm.Poke();
    {
      std::lock_guard lock(mutex);
      EXPECT_EQ(rings, i - 1);
    }
    clock.Advance(absl::Nanoseconds(1));
    alarm.Poke();
    AwaitRings(i);
  }
}

TEST_F(AlarmTest, AnEarlierDeadlineWinsAndALaterOneChangesNothing) {
  alarm.SetAtLatest(clock.Monotonic() + absl::Hours(100));
  alarm.SetAtLatest(clock.Monotonic() + absl::Seconds(1));
  alarm.SetAtLatest(clock.Monotonic() + absl::Seconds(50));
  clock.Advance(absl::Seconds(1));
  alarm.Poke();
  AwaitRings(1);
}

TEST_F(AlarmTest, ADeadlineThatHasPassedRingsAtOnce) {
  alarm.SetAtLatest(clock.Monotonic());
  AwaitRings(1);
}

TEST_F(AlarmTest, NothingRingsAfterStop) {
  alarm.Stop();
  alarm.SetAtLatest(clock.Monotonic());
  alarm.Stop();
  std::lock_guard lock(mutex);
  EXPECT_EQ(rings, 0);
}

}  // namespace
}  // namespace perigee
