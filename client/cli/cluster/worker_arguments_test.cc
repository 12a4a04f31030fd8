#include "client/cli/cluster/worker_arguments.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

TEST(WorkerArgumentsTest, HostHasNoDevice) {
  EXPECT_THAT(WorkerArguments({.ranks = 4, .threads = 3}, 2, "here:1", "/sockets"),
              ElementsAre("perigee-worker", "--name=w2", "--coordinator=here:1",
                          "--socket_dir=/sockets", "--backend=host", "--threads=3"));
}

TEST(WorkerArgumentsTest, EachWorkerHasTheDeviceOfItsRank) {
  const SupervisorOptions options = {.ranks = 4, .backend = "cuda", .memory_handle = "fd"};
  EXPECT_THAT(
      WorkerArguments(options, 3, "here:1", "/sockets"),
      IsSupersetOf({"--name=w3", "--backend=cuda", "--device=3", "--sms=0", "--memory_handle=fd"}));
}

TEST(WorkerArgumentsTest, WorkersOfASharedGpuHaveTheirPartOfIt) {
  const SupervisorOptions options = {.ranks = 8, .backend = "cuda", .shared_gpu = true, .sms = 16};
  EXPECT_THAT(WorkerArguments(options, 7, "here:1", "/sockets"),
              IsSupersetOf({"--device=0", "--sms=16", "--memory_handle=auto"}));
}

}  // namespace
}  // namespace perigee
