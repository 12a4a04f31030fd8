#include "kernels/device/caller_stream.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <iostream>
#include <vector>

#include "kernels/device/device_test.h"
#include "kernels/device/private_device_memory.h"
#include "kernels/device/stream.h"

namespace perigee {
namespace {

constexpr int kDevice = 0;
constexpr size_t kPage = 4096;

// Memory as a worker shares it: a sealed file of its own.
class SharedPage {
 public:
  SharedPage() {
    const int fd = memfd_create("page", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, kPage), 0);
    memory_ = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
  }
  ~SharedPage() { munmap(memory_, kPage); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  uint64_t* word(int i) const { return static_cast<uint64_t*>(memory_) + i; }

 private:
  void* memory_;
};

uint64_t Load(uint64_t* word) { return std::atomic_ref<uint64_t>(*word).load(); }

using NoDeviceCallerStreamTest = NoDeviceTest;

TEST_F(NoDeviceCallerStreamTest, EverythingSaysWhatIsMissing) {
  const SharedPage page;
  const absl::Status status = RegisteredMemory::Register(kDevice, page.data(), kPage).status();
  std::cout << status << std::endl;
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_TRUE(absl::IsFailedPrecondition(IsStreamDone(kDevice, nullptr).status()));
  EXPECT_TRUE(
      absl::IsFailedPrecondition(CopyOnStream(kDevice, nullptr, page.data(), page.data(), 1)));
}

using CallerStreamTest = DeviceTest;

TEST_F(CallerStreamTest, AStreamWaitsForAWordAndTellsHowFarItHasCome) {
  const SharedPage page;
  const auto words = RegisteredMemory::Register(kDevice, page.data(), kPage);
  ASSERT_TRUE(words.ok()) << words.status();
  const auto stream = Stream::Create(kDevice);
  ASSERT_TRUE(stream.ok()) << stream.status();
  CUstream_st* const raw = (*stream)->get();
  ASSERT_TRUE((*words)->WriteOnStream(raw, page.word(3), 41).ok());
  ASSERT_TRUE((*words)->WaitOnStream(raw, page.word(8), 5).ok());
  ASSERT_TRUE((*words)->WriteOnStream(raw, page.word(4), 42).ok());
  while (Load(page.word(3)) != 41) {
  }
  std::atomic_ref<uint64_t>(*page.word(8)).store(4);
  EXPECT_FALSE(*IsStreamDone(kDevice, raw));
  EXPECT_EQ(Load(page.word(4)), 0u);
  std::atomic_ref<uint64_t>(*page.word(8)).store(INT64_MAX);
  EXPECT_TRUE((*stream)->Synchronize().ok());
  EXPECT_EQ(Load(page.word(4)), 42u);
  EXPECT_TRUE(*IsStreamDone(kDevice, raw));
}

TEST_F(CallerStreamTest, CopiesComeInTheOrderOfTheStream) {
  const auto stream = Stream::Create(kDevice);
  const auto memory = PrivateDeviceMemory::Allocate(kDevice, 64);
  ASSERT_TRUE(stream.ok() && memory.ok());
  std::vector<char> from(64, 'x'), to(64, 'y');
  CUstream_st* const raw = (*stream)->get();
  ASSERT_TRUE(CopyOnStream(kDevice, raw, (*memory)->data(), from.data(), 64).ok());
  ASSERT_TRUE(CopyOnStream(kDevice, raw, to.data(), (*memory)->data(), 64).ok());
  ASSERT_TRUE((*stream)->Synchronize().ok());
  EXPECT_EQ(to, from);
}

}  // namespace
}  // namespace perigee
