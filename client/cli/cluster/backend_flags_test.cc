#include "client/cli/cluster/backend_flags.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

class BackendFlagsTest : public ::testing::Test {
 protected:
  BackendFlagsTest() : flags_("up", "") { DeclareBackendFlags(flags_, options_); }
  std::string Conflict(const std::vector<std::string>& args) {
    const absl::Status status = flags_.Parse(args);
    EXPECT_TRUE(status.ok()) << status;
    return BackendFlagsConflict(flags_, options_);
  }

  SupervisorOptions options_;
  FlagSet flags_;
};

TEST_F(BackendFlagsTest, CudaTakesThemAll) {
  EXPECT_EQ(Conflict({"--backend", "cuda", "--shared-gpu", "--memory-handle", "fd"}), "");
  EXPECT_EQ(options_.backend, "cuda");
  EXPECT_TRUE(options_.shared_gpu);
  EXPECT_EQ(options_.memory_handle, "fd");
}

TEST_F(BackendFlagsTest, HostTakesNone) {
  EXPECT_EQ(Conflict({}), "");
  EXPECT_EQ(Conflict({"--backend", "host"}), "");
  EXPECT_EQ(Conflict({"--shared-gpu"}),
            "--shared-gpu is for --backend cuda, and the backend is host");
  EXPECT_THAT(Conflict({"--backend=host", "--memory-handle=auto"}),
              HasSubstr("--memory-handle is for --backend cuda"));
}

TEST_F(BackendFlagsTest, NcclNeedsAGpuForEachRank) {
  std::string transport = "nvlink";
  DeclareTransportFlag(flags_, transport);
  EXPECT_EQ(Conflict({"--transport=nccl"}),
            "--transport is for --backend cuda, and the backend is host");
  EXPECT_EQ(transport, "nccl");
  options_.backend = "cuda";
  EXPECT_EQ(BackendFlagsConflict(flags_, options_, transport), "");
  options_.shared_gpu = true;
  EXPECT_THAT(BackendFlagsConflict(flags_, options_, transport),
              HasSubstr("--transport nccl needs a GPU for each rank"));
  EXPECT_EQ(BackendFlagsConflict(flags_, options_, "nvlink"), "");
}

TEST_F(BackendFlagsTest, OtherKindsOfHandlesAreWrong) {
  EXPECT_EQ(std::string(flags_.Parse({"--backend=cuda", "--memory-handle=ipc"}).message()),
            "--memory-handle is 'ipc', expected auto|fd|fabric");
}

}  // namespace
}  // namespace perigee
