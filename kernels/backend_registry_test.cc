#include "kernels/backend_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perigee {
namespace {

using ::testing::HasSubstr;

std::string Message(const absl::StatusOr<std::unique_ptr<Backend>>& backend) {
  return std::string(backend.status().message());
}

TEST(BackendRegistryTest, HostWorksOnAnyMachine) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend("host");
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->info().name, "host");
  EXPECT_GT((*backend)->info().memory_bytes, 0u);
  EXPECT_FALSE((*backend)->info().device.empty());
}

TEST(BackendRegistryTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend("tpu");
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(backend), "backend is \"tpu\", expected one of host, cuda");
}

TEST(BackendRegistryTest, AChoiceThatCannotBeIsRefusedOnEveryMachine) {
  const std::pair<BackendChoice, const char*> cases[] = {
      {{.device = -1}, "CUDA device is -1"},
      {{.sms = -1}, "SMs of the worker is -1"},
      {{.sms_per_buffer = -2}, "of a buffer -2"},
      {{.memory_handle = "ipc"}, "memory handle is \"ipc\", expected one of auto, fd, fabric"},
  };
  for (const auto& [choice, message] : cases) {
    const absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend("cuda", choice);
    EXPECT_EQ(backend.status().code(), absl::StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(Message(backend), HasSubstr(message));
  }
}

// Whether there is a device, the backend itself has to say here: this test knows only the registry.
TEST(BackendRegistryTest, WithoutADeviceCudaSaysWhatIsThereInstead) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend("cuda");
  if (backend.ok()) GTEST_SKIP() << "there is a device: " << (*backend)->info().device;
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(backend), HasSubstr("backend cuda: no CUDA device: "));
}

TEST(BackendRegistryTest, CudaIsMadeOnADevice) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend("cuda", {.sms = 4});
  if (absl::IsFailedPrecondition(backend.status())) GTEST_SKIP() << Message(backend);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->info().name, "cuda");
  EXPECT_GT((*backend)->info().memory_bytes, 0u);
}

TEST(BackendRegistryTest, ADeviceThatIsNotThereIsRefusedWithThoseThatAre) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend("cuda", {.device = 999});
  if (absl::IsFailedPrecondition(backend.status())) GTEST_SKIP() << Message(backend);
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(backend), HasSubstr("CUDA device is 999, expected 0 to "));
}

}  // namespace
}  // namespace perigee
