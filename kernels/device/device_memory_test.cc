#include "kernels/device/device_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "kernels/device/copy.h"
#include "kernels/device/device_test.h"
#include "kernels/device/memory_use.h"
#include "kernels/device/private_device_memory.h"

namespace perigee {
namespace {

constexpr int kDevice = 0;
constexpr size_t kUnit = size_t{2} << 20;
constexpr size_t kSize = kUnit + 4096;  // two units

using MemoryPtr = std::unique_ptr<DeviceMemory>;

absl::StatusOr<MemoryPtr> Allocate(size_t size_bytes = kSize) {
  return DeviceMemory::AllocateShared(kDevice, size_bytes, HandleKind::kPosixFd);
}

absl::StatusOr<MemoryPtr> Import(int descriptor, size_t size_bytes = kSize,
                                 bool read_only = false) {
  return DeviceMemory::Import(kDevice, descriptor, size_bytes, read_only, HandleKind::kPosixFd);
}

std::vector<std::byte> Pattern(size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251);
  return bytes;
}

std::vector<std::byte> Read(const Memory& memory) {
  std::vector<std::byte> bytes(memory.size_bytes(), std::byte{0xee});
  const absl::Status status = CopyFromDevice(kDevice, absl::MakeSpan(bytes), memory.data());
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

int PlainMemfd() {
  const int fd = memfd_create("garbage", MFD_CLOEXEC);
  EXPECT_EQ(ftruncate(fd, kSize), 0);
  return fd;
}

// What needs no device.

TEST(DeviceMemoryArgumentsTest, NoBytesAreRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(Allocate(0).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Import(-1, 0).status()));
  const absl::Status status = PrivateDeviceMemory::Allocate(kDevice, 0).status();
  // Built without CUDA, nothing looks at the size.
  EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status)) << status;
}

TEST(DeviceMemoryArgumentsTest, WhatIsNoDeviceMemoryIsRefusedAndClosed) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int garbage[] = {PlainMemfd(), ends[0], ends[1], open("/dev/null", O_RDONLY)};
  for (const HandleKind kind : {HandleKind::kPosixFd, HandleKind::kFabric}) {
    for (const int fd : garbage) {
      const int copy = dup(fd);
      const absl::Status status = DeviceMemory::Import(kDevice, copy, kSize, false, kind).status();
      EXPECT_FALSE(status.ok());
      // Without a device nobody can say more of a device file than that there is no device.
      EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status)) << status;
      EXPECT_FALSE(IsOpen(copy));
    }
    const absl::Status status = DeviceMemory::Import(kDevice, -1, kSize, false, kind).status();
    EXPECT_FALSE(status.ok());
  }
  for (const int fd : garbage) close(fd);
}

using NoDeviceMemoryTest = NoDeviceTest;

TEST_F(NoDeviceMemoryTest, EveryAllocationSaysWhatIsMissing) {
  std::cout << Allocate().status() << std::endl;
  EXPECT_TRUE(absl::IsFailedPrecondition(Allocate().status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(
      DeviceMemory::AllocateShared(kDevice, kSize, HandleKind::kFabric).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(PrivateDeviceMemory::Allocate(kDevice, kSize).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadDeviceMemoryUse(kDevice).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(FillDevice(kDevice, nullptr, 0, 1)));
}

// What needs one.

using DeviceMemoryTest = DeviceTest;

TEST_F(DeviceMemoryTest, WhatIsLetGoOfIsThisProcessesOwnAndNobodyFaults) {
  const auto memory = Allocate();
  ASSERT_TRUE(memory.ok()) << memory.status();
  const std::vector<std::byte> pattern = Pattern(kSize);
  ASSERT_TRUE(CopyToDevice(kDevice, (*memory)->data(), pattern).ok());
  const auto mapping = Import(dup((*memory)->descriptor()));
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  std::byte* const address = (*mapping)->data();
  const absl::Status status = (*mapping)->LetGo();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ((*mapping)->data(), address);
  EXPECT_EQ(Read(**mapping), std::vector<std::byte>(kSize));
  ASSERT_TRUE(FillDevice(kDevice, address, 0x11, kSize).ok());
  EXPECT_EQ(Read(**mapping), std::vector<std::byte>(kSize, std::byte{0x11}));
  EXPECT_EQ(Read(**memory), pattern);
}

TEST_F(DeviceMemoryTest, SharedMemoryIsZeroedAndRoundedUp) {
  const auto memory = Allocate();
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ((*memory)->size_bytes(), kSize);
  EXPECT_EQ((*memory)->mapped_bytes(), 2 * kUnit);
  EXPECT_TRUE(IsOpen((*memory)->descriptor()));
  EXPECT_NE(fcntl((*memory)->descriptor(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(Read(**memory), std::vector<std::byte>(kSize));
}

TEST_F(DeviceMemoryTest, TwoMappingsAreTheSameMemory) {
  const auto memory = Allocate();
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto mapping = Import(dup((*memory)->descriptor()));
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  EXPECT_NE((*mapping)->data(), (*memory)->data());
  EXPECT_EQ((*mapping)->descriptor(), -1);
  const std::vector<std::byte> pattern = Pattern(kSize);
  ASSERT_TRUE(CopyToDevice(kDevice, (*mapping)->data(), pattern).ok());
  EXPECT_EQ(Read(**memory), pattern);
  ASSERT_TRUE(FillDevice(kDevice, (*memory)->data(), 0x5a, kSize).ok());
  EXPECT_EQ(Read(**mapping), std::vector<std::byte>(kSize, std::byte{0x5a}));
}

TEST_F(DeviceMemoryTest, AMappingOutlivesItsOwner) {
  auto memory = Allocate();
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto mapping = Import(dup((*memory)->descriptor()));
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  ASSERT_TRUE(CopyToDevice(kDevice, (*memory)->data(), Pattern(kSize)).ok());
  memory->reset();
  EXPECT_EQ(Read(**mapping), Pattern(kSize));
}

TEST_F(DeviceMemoryTest, ReadOnlyMappingsRead) {
  const auto memory = Allocate();
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto mapping = Import(dup((*memory)->descriptor()), kSize, /*read_only=*/true);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  ASSERT_TRUE(CopyToDevice(kDevice, (*memory)->data(), Pattern(kSize)).ok());
  EXPECT_EQ(Read(**mapping), Pattern(kSize));
}

// In a process of its own: the store may cost it its context.
TEST_F(DeviceMemoryTest, ReadOnlyMappingsDoNotWrite) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto store_and_exit = [] {
    const auto memory = Allocate();
    if (!memory.ok()) _exit(2);
    const auto mapping = Import(dup((*memory)->descriptor()), kSize, /*read_only=*/true);
    if (!mapping.ok()) _exit(3);
    const absl::Status status = FillDevice(kDevice, (*mapping)->data(), 1, kSize);
    std::cerr << "the store: " << status << std::endl;
    _exit(status.ok() ? 1 : 0);
  };
  EXPECT_EXIT(store_and_exit(), testing::ExitedWithCode(0), "the store: ");
}

TEST_F(DeviceMemoryTest, AnotherSizeIsRefused) {
  const auto memory = Allocate();
  ASSERT_TRUE(memory.ok()) << memory.status();
  for (const size_t wrong : {kUnit, 2 * kUnit + 1, 64 * kUnit}) {
    const absl::Status status = Import(dup((*memory)->descriptor()), wrong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong << ": " << status;
  }
  EXPECT_TRUE(Import(dup((*memory)->descriptor()), 2 * kUnit).ok());
}

TEST_F(DeviceMemoryTest, ADescriptorOfAnotherDeviceFileIsRefused) {
  const int fd = open("/dev/null", O_RDONLY);
  const absl::Status status = Import(fd).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_FALSE(IsOpen(fd));
}

TEST_F(DeviceMemoryTest, TooMuchNamesWhatIsNeededAndFree) {
  const auto use = ReadDeviceMemoryUse(kDevice);
  ASSERT_TRUE(use.ok()) << use.status();
  const size_t too_much = use->total_bytes + kUnit;
  for (const absl::Status& status :
       {Allocate(too_much).status(), PrivateDeviceMemory::Allocate(kDevice, too_much).status()}) {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    const std::string text(status.message());
    EXPECT_NE(text.find("bytes are needed"), std::string::npos) << text;
    EXPECT_NE(text.find("are free"), std::string::npos) << text;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Allocate(SIZE_MAX).status()));
}

TEST_F(DeviceMemoryTest, PrivateMemoryIsZeroedAndHasNoDescriptor) {
  const auto memory = PrivateDeviceMemory::Allocate(kDevice, kSize);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ((*memory)->descriptor(), -1);
  EXPECT_EQ(Read(**memory), std::vector<std::byte>(kSize));
}

TEST_F(DeviceMemoryTest, NothingIsLeftBehind) {
  constexpr size_t kLarge = 64 * kUnit;
  const auto cycle = [] {
    const auto memory = Allocate(kLarge);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const auto mapping = Import(dup((*memory)->descriptor()), kLarge);
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    EXPECT_FALSE(Import(dup((*memory)->descriptor()), kUnit).ok());
    const auto own = PrivateDeviceMemory::Allocate(kDevice, kLarge);
    ASSERT_TRUE(own.ok()) << own.status();
  };
  // What the first cycle leaves is the context's own.
  cycle();
  const auto before = ReadDeviceMemoryUse(kDevice);
  ASSERT_TRUE(before.ok()) << before.status();
  for (int i = 0; i < 20; ++i) cycle();
  const auto after = ReadDeviceMemoryUse(kDevice);
  ASSERT_TRUE(after.ok()) << after.status();
  // Others may use the device meanwhile; a leak would be at least 20 times kLarge.
  EXPECT_GE(after->free_bytes + kLarge, before->free_bytes);
}

}  // namespace
}  // namespace perigee
