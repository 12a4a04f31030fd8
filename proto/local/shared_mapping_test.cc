#include "proto/local/shared_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

FileDescriptor Memory(size_t size_bytes, int seals) {
  FileDescriptor fd(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size_bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

std::string Refusal(FileDescriptor fd, size_t size_bytes) {
  const absl::Status status = SharedMapping::Map(std::move(fd), size_bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return std::string(status.message());
}

TEST(SharedMapping, SharesMemory) {
  FileDescriptor fd = Memory(8192, F_SEAL_SHRINK | F_SEAL_GROW);
  FileDescriptor other(dup(fd.get()));
  absl::StatusOr<SharedMapping> one = SharedMapping::Map(std::move(fd), 8192);
  absl::StatusOr<SharedMapping> two = SharedMapping::Map(std::move(other), 8192);
  ASSERT_TRUE(one.ok() && two.ok()) << one.status() << two.status();
  one->memory()[8191] = std::byte{17};
  const SharedMapping moved = *std::move(two);
  EXPECT_EQ(moved.memory()[8191], std::byte{17});
  EXPECT_EQ(moved.memory().size(), 8192u);
}

TEST(SharedMapping, MadePrivateItIsNobodyElses) {
  FileDescriptor fd = Memory(8192, F_SEAL_SHRINK | F_SEAL_GROW);
  FileDescriptor other(dup(fd.get()));
  absl::StatusOr<SharedMapping> leaver = SharedMapping::Map(std::move(fd), 8192);
  const absl::StatusOr<SharedMapping> stayer = SharedMapping::Map(std::move(other), 8192);
  ASSERT_TRUE(leaver.ok() && stayer.ok()) << leaver.status() << stayer.status();
  std::byte& theirs = leaver->memory()[8191];
  theirs = std::byte{17};
  ASSERT_TRUE(leaver->MakePrivate().ok());
  EXPECT_EQ(theirs, std::byte{0});
  theirs = std::byte{18};
  EXPECT_EQ(stayer->memory()[8191], std::byte{17});
  EXPECT_TRUE(SharedMapping().MakePrivate().ok());
}

TEST(SharedMapping, WhatCouldShrinkUnderItIsRefused) {
  EXPECT_THAT(Refusal(Memory(4096, 0), 4096), HasSubstr("sealed"));
  EXPECT_THAT(Refusal(Memory(4096, F_SEAL_GROW), 4096), HasSubstr("sealed"));
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_THAT(Refusal(FileDescriptor(ends[0]), 4096), HasSubstr("sealed"));
  FileDescriptor other(ends[1]);
}

TEST(SharedMapping, AnotherSizeIsRefused) {
  EXPECT_THAT(Refusal(Memory(4096, F_SEAL_SHRINK | F_SEAL_GROW), 8192),
              HasSubstr("has 4096 bytes, expected 8192"));
}

}  // namespace
}  // namespace perigee
