// Buffers of groups over transport nccl: no descriptor goes from rank to rank, and all ranks get
// the rendezvous that rank 0 has made.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/session/session.h"
#include "worker/testing/fake_backend.h"
#include "worker/testing/session_group.h"

namespace perigee {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

v1::BufferShape Shape(int32_t slots) {
  v1::BufferShape shape;
  shape.set_tokens(2);
  shape.set_hidden(16);
  shape.set_topk(2);
  shape.set_experts(6);
  shape.set_slots(slots);
  shape.set_token_padding(1);
  shape.set_intermediate(8);
  shape.set_layers(1);
  return shape;
}

class SessionTransportTest : public ::testing::Test {
 protected:
  SessionTransportTest()
      : group_(
            3,
            [this](int32_t) {
              auto backend = std::make_unique<FakeBackend>();
              backends_.push_back(backend.get());
              return backend;
            },
            "nccl") {}

  std::vector<FakeBackend*> backends_;
  SessionGroup group_;
};

TEST_F(SessionTransportTest, RanksGetTheRendezvousAndMapNoPeer) {
  for (int32_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(group_.session(rank).AllocateBuffer(group_.AllocateCommand(rank, Shape(2))).ok());
    const auto rendezvous = group_.session(rank).NewRendezvous();
    ASSERT_TRUE(rendezvous.ok()) << rendezvous.status();
    EXPECT_EQ(*rendezvous, rank == 0 ? "meet here" : "");
  }
  for (int32_t rank = 0; rank < 3; ++rank) {
    v1::ConnectBufferCommand command = group_.ConnectCommand(rank);
    command.set_rendezvous("meet here");
    const absl::Status status = group_.session(rank).ConnectBuffer(command);
    ASSERT_TRUE(status.ok()) << status;
    const DataPathOptions& options = backends_[rank]->path_options();
    EXPECT_EQ(options.transport, Transport::kNccl);
    EXPECT_EQ(options.rendezvous, "meet here");
    EXPECT_EQ(backends_[rank]->ledger()->alive("peer"), 0);
    ASSERT_EQ(options.shards.size(), 3u);
    EXPECT_THAT(options.shards, Each(options.shards[rank]));
    const auto access = group_.buffer(rank).Enter();
    ASSERT_TRUE(access.ok()) << access.status();
    EXPECT_THAT(access->memory().homes(0), Each(access->memory().own_home(0)));
  }
}

TEST_F(SessionTransportTest, ExpertsWithoutASlotAreRefused) {
  const absl::Status status =
      group_.session(0).AllocateBuffer(group_.AllocateCommand(0, Shape(1))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("slots is 1, expected experts / ranks = 2 or more"));
  v1::BufferShape rows_alone = Shape(0);
  rows_alone.set_intermediate(0);
  rows_alone.set_layers(0);
  EXPECT_TRUE(group_.session(0).AllocateBuffer(group_.AllocateCommand(0, rows_alone)).ok());
}

TEST_F(SessionTransportTest, ASourceThatNobodyCouldReadIsRefused) {
  v1::BufferShape shape = Shape(2);
  shape.set_source_storage(true);
  const absl::Status status =
      group_.session(0).AllocateBuffer(group_.AllocateCommand(0, shape)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("over transport nccl no rank reads the source shard of another"));
}

TEST_F(SessionTransportTest, StoresThatReachNobodyAreRefused) {
  v1::BufferShape shape = Shape(2);
  shape.set_peer_store(true);
  const absl::Status status =
      group_.session(0).AllocateBuffer(group_.AllocateCommand(0, shape)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("over transport nccl no rank's shard"));
}

TEST_F(SessionTransportTest, AnUnknownTransportIsRefused) {
  v1::OpenSessionCommand command = group_.OpenCommand(0);
  command.set_transport("ib");
  const absl::Status status =
      Session::Open(kTestGroup, Generation(8), command, group_.environment(0)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("'ib', expected nvlink or nccl"));
}

}  // namespace
}  // namespace perigee
