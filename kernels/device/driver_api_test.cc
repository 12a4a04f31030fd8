#include "kernels/device/driver_api.h"

#include <gtest/gtest.h>

#include <iostream>
#include <thread>
#include <vector>

#include "kernels/device/device_scope.h"
#include "kernels/device/device_test.h"

namespace perigee {
namespace {

using DriverApiTest = DeviceTest;
using NoDriverTest = NoDeviceTest;

TEST_F(NoDriverTest, TheErrorIsTheSameEveryTime) {
  const auto first = GetDriverApi();
  const auto second = GetDriverApi();
  std::cout << first.status() << std::endl;
  EXPECT_TRUE(absl::IsFailedPrecondition(first.status())) << first.status();
  EXPECT_EQ(first.status(), second.status());
  EXPECT_EQ(DeviceScope::Enter(0).status(), first.status());
}

TEST_F(DriverApiTest, ManyThreadsGetOneTable) {
  std::vector<const DriverApi*> tables(8);
  {
    std::vector<std::jthread> threads;
    threads.reserve(tables.size());
    for (const DriverApi*& table : tables) {
      threads.emplace_back([&table] {
        const auto api = GetDriverApi();
        if (api.ok()) table = *api;
      });
    }
  }
  ASSERT_NE(tables[0], nullptr);
  for (const DriverApi* table : tables) EXPECT_EQ(table, tables[0]);
}

TEST_F(DriverApiTest, ScopesNest) {
  const auto outer = DeviceScope::Enter(0);
  ASSERT_TRUE(outer.ok()) << outer.status();
  const auto inner = DeviceScope::Enter(0);
  EXPECT_TRUE(inner.ok()) << inner.status();
}

TEST_F(DriverApiTest, ADeviceThatIsNotThereIsRefused) {
  for (const int device : {-1, 4096}) {
    const absl::Status status = DeviceScope::Enter(device).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
}

}  // namespace
}  // namespace perigee
