#include "kernels/backend_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perigee {
namespace {

using ::testing::HasSubstr;

TEST(BackendRegistryTest, HostWorksOnAnyMachine) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend("host");
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->info().name, "host");
  EXPECT_GT((*backend)->info().memory_bytes, 0u);
  EXPECT_FALSE((*backend)->info().device.empty());
}

TEST(BackendRegistryTest, CudaSaysWhyNotAndWhatInstead) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend("cuda");
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(backend.status().message()), HasSubstr("use backend host"));
}

TEST(BackendRegistryTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend("tpu");
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(backend.status().message()),
            "backend is \"tpu\", expected one of host, cuda");
}

}  // namespace
}  // namespace perigee
