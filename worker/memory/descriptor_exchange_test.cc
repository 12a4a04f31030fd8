// The server and the client of descriptors, over a real socket.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/layout/abi.h"
#include "proto/support/defaults.h"
#include "tests/testing/fake_clock.h"
#include "worker/memory/descriptor_client.h"
#include "worker/memory/descriptor_server.h"
#include "worker/testing/scratch_directory.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DescriptorExchangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<DescriptorServer>> server =
        DescriptorServer::Start(directory_.path() + "/w", clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  // Parts of 4096, 8192, ... bytes.
  void Publish(int count) {
    std::vector<OfferedPart> parts;
    for (int i = 0; i < count; ++i) {
      files_.emplace_back(memfd_create("part", MFD_CLOEXEC));
      const uint64_t size = 4096 * (i + 1);
      ASSERT_EQ(ftruncate(files_.back().get(), static_cast<off_t>(size)), 0);
      descriptions_.push_back(
          {static_cast<uint32_t>(i == 0 ? PartKind::kShard : PartKind::kHomeBlock), i - 1, size});
      parts.push_back({descriptions_.back(), files_.back().get()});
    }
    server_->Publish(scope_, {peer_}, parts);
  }

  DescriptorRequest Good() const {
    DescriptorRequest request;
    request.abi = kDataPathAbi;
    request.group_hash = scope_.group_hash;
    request.generation = scope_.generation.value;
    request.buffer = scope_.buffer.value;
    request.requester_rank = peer_.rank.value;
    request.requester_incarnation = peer_.incarnation;
    request.exporter_rank = scope_.rank.value;
    request.exporter_incarnation = scope_.incarnation;
    request.ticket = peer_.ticket;
    return request;
  }
  absl::StatusOr<std::vector<FileDescriptor>> Fetch(const DescriptorRequest& request) {
    return FetchDescriptors(server_->path(), request, descriptions_, WaitLimit(kConnectTimeout));
  }
  // What a requester is answered that sends these bytes.
  absl::StatusOr<SocketMessage> Ask(const std::string& bytes, absl::Span<const int> fds = {}) {
    absl::StatusOr<UnixSocket> socket =
        UnixSocket::Connect(server_->path(), WaitLimit(kConnectTimeout));
    if (!socket.ok()) return socket.status();
    absl::Status status = socket->Send(bytes, fds, WaitLimit(kConnectTimeout));
    if (!status.ok()) return status;
    return socket->Receive(sizeof(DescriptorReply), kPartsPerReply, WaitLimit(kConnectTimeout));
  }

  const ExportScope scope_{11, Generation(7), BufferId(3), RankId(0), 100};
  const PeerTicket peer_{RankId(1), 101, {1, 2, 3}};
  ScratchDirectory directory_;
  FakeClock clock_;
  std::vector<FileDescriptor> files_;
  std::vector<PartDescription> descriptions_;
  std::unique_ptr<DescriptorServer> server_;
};

TEST_F(DescriptorExchangeTest, HandsOutEveryPartInOrder) {
  Publish(3);
  absl::StatusOr<std::vector<FileDescriptor>> got = Fetch(Good());
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    struct stat found;
    ASSERT_EQ(fstat((*got)[i].get(), &found), 0);
    EXPECT_EQ(static_cast<uint64_t>(found.st_size), descriptions_[i].size_bytes);
  }
}

TEST_F(DescriptorExchangeTest, MorePartsThanOneMessageHolds) {
  Publish(2 * kPartsPerReply + 5);
  absl::StatusOr<std::vector<FileDescriptor>> got = Fetch(Good());
  ASSERT_TRUE(got.ok()) << got.status();
  struct stat found;
  ASSERT_EQ(fstat(got->back().get(), &found), 0);
  EXPECT_EQ(static_cast<uint64_t>(found.st_size), descriptions_.back().size_bytes);
}

TEST_F(DescriptorExchangeTest, AReplayedTicketIsRefused) {
  Publish(1);
  ASSERT_TRUE(Fetch(Good()).ok());
  const absl::Status status = Fetch(Good()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(DescriptorExchangeTest, WrongRankGenerationOrTicketAreRefusedAlike) {
  Publish(1);
  DescriptorRequest wrong = Good();
  wrong.ticket[3] = 9;
  const absl::Status unknown = Fetch(wrong).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kPermissionDenied);
  wrong = Good();
  wrong.requester_rank = 2;
  EXPECT_EQ(Fetch(wrong).status(), unknown);
  server_->Withdraw(scope_.buffer, scope_.generation);
  Publish(1);
  descriptions_.pop_back();
  wrong = Good();
  wrong.generation = 6;
  EXPECT_EQ(Fetch(wrong).status(), unknown);
  EXPECT_EQ(Fetch(Good()).status(), unknown);
}

TEST_F(DescriptorExchangeTest, WithdrawnBuffersAreRefused) {
  Publish(1);
  server_->Withdraw(scope_.buffer, scope_.generation);
  EXPECT_EQ(Fetch(Good()).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(DescriptorExchangeTest, ExpiredTicketsAreRefused) {
  Publish(1);
  clock_.Advance(kAttachTicketLife);
  EXPECT_EQ(Fetch(Good()).status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(DescriptorExchangeTest, GarbageIsRefusedAndHoldsNobodyUp) {
  Publish(1);
  DescriptorRequest other_magic = Good();
  other_magic.magic = 0;
  for (const std::string& bytes : {std::string("x"), std::string(4096, '\xff'),
                                   ToBytes(other_magic), ToBytes(DescriptorReply())}) {
    absl::StatusOr<SocketMessage> answer = Ask(bytes);
    if (answer.ok()) {
      EXPECT_EQ(ParseDescriptorReply(answer->bytes)->code,
                static_cast<uint32_t>(absl::StatusCode::kPermissionDenied));
      EXPECT_TRUE(answer->descriptors.empty());
    }
  }
  EXPECT_FALSE(Ask(ToBytes(Good()), {files_[0].get()}).ok());
  EXPECT_TRUE(Fetch(Good()).ok());
}

TEST_F(DescriptorExchangeTest, SilentConnectionsHoldNobodyUp) {
  Publish(1);
  std::vector<UnixSocket> silent;
  for (int i = 0; i < 20; ++i) {
    absl::StatusOr<UnixSocket> socket =
        UnixSocket::Connect(server_->path(), WaitLimit(kConnectTimeout));
    ASSERT_TRUE(socket.ok());
    silent.push_back(*std::move(socket));
  }
  EXPECT_TRUE(Fetch(Good()).ok());
}

TEST_F(DescriptorExchangeTest, TheSocketIsGoneWithTheServer) {
  EXPECT_FALSE(directory_.empty());
  server_.reset();
  EXPECT_TRUE(directory_.empty());
}

// A peer that answers with something else than it should.
class BadPeerTest : public DescriptorExchangeTest {
 protected:
  absl::Status FetchFrom(const DescriptorReply& reply, int descriptors) {
    absl::StatusOr<UnixListener> listener = UnixListener::Listen(directory_.path() + "/bad");
    EXPECT_TRUE(listener.ok());
    const FileDescriptor memory(memfd_create("part", MFD_CLOEXEC));
    std::thread peer([&] {
      absl::optional<UnixSocket> socket;
      const WaitLimit limit(kConnectTimeout);
      ASSERT_TRUE(limit.Wait(listener->fd(), 1 /* POLLIN */).ok());
      socket = **listener->Accept();
      ASSERT_TRUE(socket->Receive(sizeof(DescriptorRequest), 0, limit).ok());
      const std::vector<int> fds(descriptors, memory.get());
      ASSERT_TRUE(socket->Send(ToBytes(reply), fds, limit).ok());
    });
    const absl::Status status =
        FetchDescriptors(listener->path(), Good(), expected_, WaitLimit(kConnectTimeout)).status();
    peer.join();
    return status;
  }
  DescriptorReply GoodReply() const {
    DescriptorReply reply;
    reply.part_count = reply.parts_here = 2;
    reply.parts[0] = expected_[0];
    reply.parts[1] = expected_[1];
    return reply;
  }
  const std::vector<PartDescription> expected_ = {
      {static_cast<uint32_t>(PartKind::kShard), -1, 4096},
      {static_cast<uint32_t>(PartKind::kHomeBlock), 0, 8192}};
};

TEST_F(BadPeerTest, AGoodReplyIsTaken) { EXPECT_TRUE(FetchFrom(GoodReply(), 2).ok()); }

TEST_F(BadPeerTest, FewerDescriptorsThanPartsAreRefused) {
  EXPECT_EQ(FetchFrom(GoodReply(), 1).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BadPeerTest, AnotherSizeIsRefusedNamingBoth) {
  DescriptorReply reply = GoodReply();
  reply.parts[1].size_bytes = 4096;
  const absl::Status status = FetchFrom(reply, 2);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("4096"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("8192"));
}

TEST_F(BadPeerTest, AnotherNumberOfPartsIsRefused) {
  DescriptorReply reply = GoodReply();
  reply.part_count = 3;
  EXPECT_EQ(FetchFrom(reply, 2).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BadPeerTest, AMissingPartIsUnavailable) {
  DescriptorReply reply = GoodReply();
  reply.parts_here = 1;
  EXPECT_EQ(FetchFrom(reply, 1).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace perigee
