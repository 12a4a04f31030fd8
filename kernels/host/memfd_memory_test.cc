#include "kernels/host/memfd_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace perigee {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kBytes = 3 * 4096;

std::unique_ptr<Memory> Allocate(PeerAccess access) {
  absl::StatusOr<std::unique_ptr<Memory>> memory = AllocateMemfd(kBytes, access);
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *std::move(memory);
}

int Duplicate(const Memory& memory) { return fcntl(memory.descriptor(), F_DUPFD_CLOEXEC, 0); }

bool IsOpen(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

std::string ImportError(int descriptor, size_t size_bytes, PeerAccess access) {
  const absl::StatusOr<std::unique_ptr<Memory>> memory =
      ImportMemfd(descriptor, size_bytes, access);
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kInvalidArgument) << memory.status();
  EXPECT_FALSE(IsOpen(descriptor)) << "ownership was not taken";
  return std::string(memory.status().message());
}

TEST(MemfdMemoryTest, ItIsZeroedAndShared) {
  const std::unique_ptr<Memory> memory = Allocate(PeerAccess::kReadWrite);
  EXPECT_EQ(memory->size_bytes(), kBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 4096, 0u);
  EXPECT_TRUE(std::all_of(memory->data(), memory->data() + kBytes,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  const int descriptor = Duplicate(*memory);
  const absl::StatusOr<std::unique_ptr<Memory>> imported =
      ImportMemfd(descriptor, kBytes, PeerAccess::kReadWrite);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_FALSE(IsOpen(descriptor));
  EXPECT_EQ((*imported)->descriptor(), -1);
  EXPECT_NE((*imported)->data(), memory->data());
  memory->data()[5] = std::byte{7};
  EXPECT_EQ((*imported)->data()[5], std::byte{7});
  (*imported)->data()[kBytes - 1] = std::byte{8};
  EXPECT_EQ(memory->data()[kBytes - 1], std::byte{8});
}

TEST(MemfdMemoryTest, ItsPagesExistFromTheStart) {
  const std::unique_ptr<Memory> memory = Allocate(PeerAccess::kReadWrite);
  struct stat status = {};
  ASSERT_EQ(fstat(memory->descriptor(), &status), 0);
  EXPECT_EQ(status.st_blocks * 512, static_cast<blkcnt_t>(kBytes));
}

TEST(MemfdMemoryTest, ItsLengthIsSealed) {
  const std::unique_ptr<Memory> memory = Allocate(PeerAccess::kReadWrite);
  EXPECT_NE(ftruncate(memory->descriptor(), 4096), 0);
  EXPECT_NE(ftruncate(memory->descriptor(), 2 * kBytes), 0);
  // Nor can anybody seal it further, and so take the right to write from peers.
  EXPECT_NE(fcntl(memory->descriptor(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
}

TEST(MemfdMemoryTest, ReadOnlyMemoryIsWritableForItsOwnerAlone) {
  const std::unique_ptr<Memory> memory = Allocate(PeerAccess::kReadOnly);
  memory->data()[0] = std::byte{9};
  const absl::StatusOr<std::unique_ptr<Memory>> imported =
      ImportMemfd(Duplicate(*memory), kBytes, PeerAccess::kReadOnly);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ((*imported)->data()[0], std::byte{9});
  EXPECT_THAT(ImportError(Duplicate(*memory), kBytes, PeerAccess::kReadWrite),
              HasSubstr("is read only"));
  EXPECT_EQ(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->descriptor(), 0),
            MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
}

TEST(MemfdMemoryTest, ImportsOfAnythingElseAreRefused) {
  const std::unique_ptr<Memory> memory = Allocate(PeerAccess::kReadWrite);
  EXPECT_THAT(ImportError(Duplicate(*memory), kBytes - 1, PeerAccess::kReadWrite),
              AllOf(HasSubstr("12288 bytes"), HasSubstr("expected 12287")));
  EXPECT_THAT(ImportError(Duplicate(*memory), 0, PeerAccess::kReadWrite), HasSubstr("expected 0"));
  EXPECT_THAT(ImportError(-1, kBytes, PeerAccess::kReadWrite), HasSubstr("descriptor -1"));
  EXPECT_THAT(ImportError(open("/dev/null", O_RDWR | O_CLOEXEC), kBytes, PeerAccess::kReadWrite),
              HasSubstr("is no memory that is sealed"));
  const int unsealed = memfd_create("unsealed", MFD_ALLOW_SEALING | MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(unsealed, kBytes), 0);
  EXPECT_THAT(ImportError(unsealed, kBytes, PeerAccess::kReadOnly),
              HasSubstr("is no memory that is sealed"));
}

TEST(MemfdMemoryTest, TooMuchIsAnErrorAtOnce) {
  constexpr size_t kTooMuch = size_t{1} << 46;
  for (const auto& memory : {AllocateMemfd(kTooMuch, PeerAccess::kReadWrite).status(),
                             AllocateAnonymous(kTooMuch).status()}) {
    EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(memory.message()),
                AllOf(HasSubstr("70368744177664 bytes"), HasSubstr("are available")));
  }
}

TEST(MemfdMemoryTest, NothingIsRefused) {
  EXPECT_EQ(AllocateMemfd(0, PeerAccess::kReadWrite).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AllocateAnonymous(0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MemfdMemoryTest, PrivateMemoryIsZeroedAndHasNoDescriptor) {
  const absl::StatusOr<std::unique_ptr<Memory>> memory = AllocateAnonymous(5000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ((*memory)->descriptor(), -1);
  EXPECT_EQ((*memory)->size_bytes(), 5000u);
  EXPECT_TRUE(std::all_of((*memory)->data(), (*memory)->data() + 5000,
                          [](std::byte byte) { return byte == std::byte{0}; }));
}

}  // namespace
}  // namespace perigee
