#include "kernels/device/handle_kinds.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <iostream>
#include <string>

#include "kernels/device/device_test.h"

namespace perigee {
namespace {

const absl::Status kNotPermitted = absl::FailedPreconditionError("operation not permitted");

TEST(HandleKindsTest, AutoIsFd) {
  const HandleKinds all;
  EXPECT_EQ(*ResolveHandleKind("auto", all), HandleKind::kPosixFd);
  EXPECT_EQ(*ResolveHandleKind("fd", all), HandleKind::kPosixFd);
  EXPECT_EQ(*ResolveHandleKind("fabric", all), HandleKind::kFabric);
}

TEST(HandleKindsTest, ARefusedKindIsAnErrorThatNamesIt) {
  const HandleKinds no_fabric{absl::OkStatus(), kNotPermitted};
  EXPECT_EQ(*ResolveHandleKind("auto", no_fabric), HandleKind::kPosixFd);
  const absl::Status status = ResolveHandleKind("fabric", no_fabric).status();
  EXPECT_EQ(status, absl::FailedPreconditionError("this machine refuses memory handles of kind "
                                                  "fabric: operation not permitted"));
  const HandleKinds none{kNotPermitted, kNotPermitted};
  EXPECT_TRUE(absl::IsFailedPrecondition(ResolveHandleKind("auto", none).status()));
}

TEST(HandleKindsTest, OtherWordsAreRefused) {
  for (const char* option : {"", "Fd", "posix", "fd "}) {
    const absl::Status status = ResolveHandleKind(option, HandleKinds()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
}

TEST(HandleKindsTest, TheDescriptionNamesBoth) {
  EXPECT_EQ(DescribeHandleKinds({absl::OkStatus(), kNotPermitted}),
            "fd: ok; fabric: operation not permitted");
}

using NoDeviceHandleKindsTest = NoDeviceTest;

TEST_F(NoDeviceHandleKindsTest, NothingWorksAndTheReasonIsGiven) {
  const HandleKinds kinds = ProbeHandleKinds(0);
  std::cout << DescribeHandleKinds(kinds) << std::endl;
  EXPECT_TRUE(absl::IsFailedPrecondition(kinds.posix_fd)) << kinds.posix_fd;
  EXPECT_TRUE(absl::IsFailedPrecondition(kinds.fabric)) << kinds.fabric;
}

using DeviceHandleKindsTest = DeviceTest;

TEST_F(DeviceHandleKindsTest, FdWorksAndFabricWorksOrSaysWhyNot) {
  const HandleKinds kinds = ProbeHandleKinds(0);
  std::cout << DescribeHandleKinds(kinds) << std::endl;
  EXPECT_TRUE(kinds.posix_fd.ok()) << kinds.posix_fd;
  EXPECT_TRUE(kinds.fabric.ok() || !kinds.fabric.message().empty());
}

TEST_F(DeviceHandleKindsTest, FabricHandlesTravelInAMemfd) {
  const HandleKinds kinds = ProbeHandleKinds(0);
  if (!kinds.fabric.ok()) GTEST_SKIP() << DescribeHandleKinds(kinds);
  const auto memory = DeviceMemory::AllocateShared(0, 4096, HandleKind::kFabric);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto mapping = DeviceMemory::Import(0, dup((*memory)->descriptor()), 4096,
                                            /*read_only=*/false, HandleKind::kFabric);
  EXPECT_TRUE(mapping.ok()) << mapping.status();
}

}  // namespace
}  // namespace perigee
