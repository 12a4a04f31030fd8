#include "kernels/device/cuda_status.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/device/device_info.h"

namespace perigee {
namespace {

// The numbers of cuda.h and driver_types.h, which a build without CUDA does not have.
constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kStubLibrary = 34;
constexpr int kInsufficientDriver = 35;
constexpr int kNoDevice = 100;
constexpr int kInvalidDevice = 101;
constexpr int kUncorrectableMemoryError = 214;
constexpr int kNotReady = 600;
constexpr int kIllegalAddress = 700;
constexpr int kLaunchFailure = 719;
constexpr int kNotPermitted = 800;
constexpr int kNotSupported = 801;
constexpr int kMpsServerNotReady = 807;
constexpr int kMpsMaxClients = 808;
constexpr int kMpsClientTerminated = 810;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

class CudaStatusTest : public testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices devices = QueryCudaDevices();
    if (!devices.built_with_cuda) GTEST_SKIP() << DescribeCudaDevices(devices);
  }
};

TEST_F(CudaStatusTest, EveryCodeHasItsMeaning) {
  const struct {
    int code;
    absl::StatusCode expected;
  } cases[] = {
      {0, absl::StatusCode::kOk},
      {kInvalidValue, absl::StatusCode::kInvalidArgument},
      {kOutOfMemory, absl::StatusCode::kResourceExhausted},
      {kStubLibrary, absl::StatusCode::kFailedPrecondition},
      {kInsufficientDriver, absl::StatusCode::kFailedPrecondition},
      {kNoDevice, absl::StatusCode::kFailedPrecondition},
      {kInvalidDevice, absl::StatusCode::kInvalidArgument},
      {kUncorrectableMemoryError, absl::StatusCode::kDataLoss},
      {kNotReady, absl::StatusCode::kInternal},
      {kIllegalAddress, absl::StatusCode::kDataLoss},
      {kLaunchFailure, absl::StatusCode::kDataLoss},
      {kNotPermitted, absl::StatusCode::kFailedPrecondition},
      {kNotSupported, absl::StatusCode::kUnimplemented},
      {kMpsServerNotReady, absl::StatusCode::kUnavailable},
      {kMpsMaxClients, absl::StatusCode::kResourceExhausted},
      {kMpsClientTerminated, absl::StatusCode::kDataLoss},
      {123456, absl::StatusCode::kInternal},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(CudaStatus(c.code, "testing").code(), c.expected) << c.code;
    EXPECT_EQ(IsCudaContextLost(c.code), c.expected == absl::StatusCode::kDataLoss) << c.code;
  }
}

TEST_F(CudaStatusTest, TheTextSaysWhatWasDoneAndWhatCameOfIt) {
  EXPECT_EQ(Text(CudaStatus(kOutOfMemory, "allocating 7 bytes")),
            "allocating 7 bytes: cudaErrorMemoryAllocation (2): out of memory");
}

TEST_F(CudaStatusTest, ALostContextIsNamed) {
  const absl::Status status = CudaStatus(kIllegalAddress, "dispatch");
  EXPECT_TRUE(IsCudaContextLost(status));
  EXPECT_NE(Text(status).find("the CUDA context of this process is lost"), std::string::npos);
  EXPECT_FALSE(IsCudaContextLost(CudaStatus(kOutOfMemory, "dispatch")));
}

TEST(WithoutCudaTest, BuiltWithoutCudaIsAPrecondition) {
  EXPECT_TRUE(absl::IsFailedPrecondition(BuiltWithoutCuda()));
  EXPECT_TRUE(CudaStatus(0, "testing").ok());
  EXPECT_FALSE(CudaStatus(kOutOfMemory, "testing").ok());
}

}  // namespace
}  // namespace perigee
