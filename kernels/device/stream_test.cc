#include "kernels/device/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <iostream>

#include "kernels/device/copy.h"
#include "kernels/device/device_test.h"
#include "kernels/device/event.h"
#include "kernels/device/pinned.h"

namespace perigee {
namespace {

constexpr int kDevice = 0;

struct Words {
  uint32_t abort = 7;
  uint32_t seen = 0;
  uint64_t detail = 9;
};

using NoDeviceStreamTest = NoDeviceTest;

TEST_F(NoDeviceStreamTest, EveryCreateSaysWhatIsMissing) {
  std::cout << Stream::Create(kDevice).status() << std::endl;
  EXPECT_TRUE(absl::IsFailedPrecondition(Stream::Create(kDevice).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(Event::Create(kDevice).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(PinnedMemory::Allocate(kDevice, 64).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(PinnedObject<Words>::Create(kDevice).status()));
}

using StreamTest = DeviceTest;

TEST_F(StreamTest, AnIdleStreamIsDone) {
  for (const StreamPriority priority : {StreamPriority::kNormal, StreamPriority::kHigh}) {
    const auto stream = Stream::Create(kDevice, priority);
    ASSERT_TRUE(stream.ok()) << stream.status();
    EXPECT_TRUE((*stream)->Synchronize().ok());
    const auto done = (*stream)->Query();
    ASSERT_TRUE(done.ok()) << done.status();
    EXPECT_TRUE(*done);
  }
}

TEST_F(StreamTest, ADeviceThatIsNotThereIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(Stream::Create(4096).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Event::Create(4096).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(PinnedMemory::Allocate(4096, 64).status()));
}

TEST_F(StreamTest, EventsMarkAndOrderStreams) {
  const auto first = Stream::Create(kDevice);
  const auto second = Stream::Create(kDevice, StreamPriority::kHigh);
  const auto start = Event::Create(kDevice, EventTiming::kOn);
  const auto end = Event::Create(kDevice, EventTiming::kOn);
  ASSERT_TRUE(first.ok() && second.ok() && start.ok() && end.ok());
  EXPECT_TRUE((*start)->Query().value());  // nothing is marked yet
  ASSERT_TRUE((*start)->Record((*first)->get()).ok());
  ASSERT_TRUE((*start)->MakeWait((*second)->get()).ok());
  ASSERT_TRUE((*end)->Record((*second)->get()).ok());
  ASSERT_TRUE((*end)->Synchronize().ok());
  EXPECT_TRUE((*start)->Query().value());
  const auto elapsed = Elapsed(**start, **end);
  ASSERT_TRUE(elapsed.ok()) << elapsed.status();
  EXPECT_GE(*elapsed, absl::ZeroDuration());
}

TEST_F(StreamTest, EventsWithoutTimingHaveNoTime) {
  const auto stream = Stream::Create(kDevice);
  const auto event = Event::Create(kDevice);
  ASSERT_TRUE(stream.ok() && event.ok());
  ASSERT_TRUE((*event)->Record((*stream)->get()).ok());
  ASSERT_TRUE((*event)->Synchronize().ok());
  EXPECT_FALSE(Elapsed(**event, **event).ok());
  // The failed call leaves nothing behind for the next.
  EXPECT_TRUE((*stream)->Synchronize().ok());
}

TEST_F(StreamTest, PinnedMemoryIsOneMemoryForBothSides) {
  EXPECT_TRUE(absl::IsInvalidArgument(PinnedMemory::Allocate(kDevice, 0).status()));
  const auto words = PinnedObject<Words>::Create(kDevice);
  ASSERT_TRUE(words.ok()) << words.status();
  EXPECT_EQ(words->host()->abort, 7u);
  EXPECT_EQ(words->host()->detail, 9u);
  const auto address = reinterpret_cast<std::byte*>(words->device_address());
  ASSERT_TRUE(FillDevice(kDevice, address, 0xff, sizeof(Words)).ok());
  EXPECT_EQ(std::atomic_ref(words->host()->abort).load(), UINT32_MAX);
}

}  // namespace
}  // namespace perigee
