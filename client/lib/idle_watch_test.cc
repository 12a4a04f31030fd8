#include "client/lib/idle_watch.h"

#include <future>

#include "gtest/gtest.h"

namespace perigee {
namespace {

TEST(IdleWatchTest, SpeaksAfterSilence) {
  std::promise<void> idle;
  IdleWatch watch(absl::Milliseconds(1), [&] { idle.set_value(); });
  ASSERT_EQ(idle.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_TRUE(watch.expired());
}

TEST(IdleWatchTest, EndsAtOnceAndUnheardWhenTheStreamDoes) {
  bool idle = false;
  {
    IdleWatch watch(absl::Hours(1), [&] { idle = true; });
    watch.Alive();
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_FALSE(idle);
}

}  // namespace
}  // namespace perigee
