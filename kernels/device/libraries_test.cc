// The libraries that are opened at run time: NCCL and NVML.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "kernels/device/device_test.h"
#include "kernels/device/nccl_library.h"
#include "kernels/device/nvml_library.h"
#include "kernels/device/shared_library.h"

namespace perigee {
namespace {

constexpr char kMissing[] = "libperigee-is-not-there.so.9";

TEST(SharedLibraryTest, AMissingLibraryIsNamed) {
  const absl::Status status = SharedLibrary::Open(kMissing).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_NE(status.ToString().find(kMissing), std::string::npos) << status;
  EXPECT_TRUE(absl::IsNotFound(NcclLibrary::Open(kMissing).status()));
  EXPECT_TRUE(absl::IsNotFound(NvmlLibrary::Open(kMissing).status()));
}

TEST(SharedLibraryTest, SymbolsAreFoundOrNamed) {
  const auto library = SharedLibrary::Open("libm.so.6");
  ASSERT_TRUE(library.ok()) << library.status();
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(library->Find("cos", &cosine).ok());
  EXPECT_EQ(cosine(0.0), 1.0);
  const absl::Status status = library->Find("perigee_is_not_there", &cosine);
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_NE(status.ToString().find("perigee_is_not_there"), std::string::npos);
}

TEST(SharedLibraryTest, ALibraryThatIsAnotherIsRefused) {
  EXPECT_TRUE(absl::IsUnimplemented(NcclLibrary::Open("libm.so.6").status()));
  EXPECT_TRUE(absl::IsUnimplemented(NvmlLibrary::Open("libm.so.6").status()));
}

TEST(NcclLibraryTest, SaysItsVersionAndThatThereIsNoDevice) {
  const auto nccl = NcclLibrary::Open();
  if (!nccl.ok()) GTEST_SKIP() << nccl.status();
  std::cout << "NCCL " << (*nccl)->version_text() << " at " << (*nccl)->path() << std::endl;
  EXPECT_GE((*nccl)->version(), 20000);
  EXPECT_NE(std::getenv("NCCL_NVLS_ENABLE"), nullptr);
  if (QueryCudaDevices().devices.empty()) {
    const absl::Status status = (*nccl)->SmokeCheck(0);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  }
}

using NcclDeviceTest = DeviceTest;

TEST_F(NcclDeviceTest, OneRankSumsToItself) {
  const auto nccl = NcclLibrary::Open();
  if (!nccl.ok()) GTEST_SKIP() << nccl.status();
  const absl::Status status = (*nccl)->SmokeCheck(0);
  EXPECT_TRUE(status.ok()) << status;
  const absl::Status missing = (*nccl)->SmokeCheck(4096);
  EXPECT_TRUE(absl::IsInvalidArgument(missing)) << missing;
}

TEST(NvmlLibraryTest, DescribesDriverAndDevices) {
  const auto nvml = NvmlLibrary::Open();
  if (!nvml.ok()) GTEST_SKIP() << nvml.status();
  const auto version = (*nvml)->DriverVersion();
  ASSERT_TRUE(version.ok()) << version.status();
  EXPECT_NE(version->find('.'), std::string::npos) << *version;
  const auto devices = (*nvml)->Devices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  for (const NvmlDevice& device : *devices) {
    std::cout << device.name << " " << device.uuid << ", " << device.nvlinks << " NVLinks"
              << std::endl;
    EXPECT_EQ(device.uuid.rfind("GPU-", 0), 0u) << device.uuid;
    EXPECT_GT(device.total_bytes, device.free_bytes);
  }
}

}  // namespace
}  // namespace perigee
