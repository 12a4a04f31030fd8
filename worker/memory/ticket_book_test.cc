#include "worker/memory/ticket_book.h"

#include "gtest/gtest.h"
#include "kernels/layout/abi.h"

namespace perigee {
namespace {

constexpr absl::Duration kNow = absl::Seconds(100);
constexpr absl::Duration kEnd = absl::Seconds(130);

class TicketBookTest : public ::testing::Test {
 protected:
  TicketBookTest() { book_.Issue(scope_, {peer_, other_peer_}, kEnd); }

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
  // The refusal, and that the ticket is spent by it.
  absl::StatusCode Refused(void (*change)(DescriptorRequest&)) {
    DescriptorRequest request = Good();
    change(request);
    const absl::Status status = book_.Redeem(request, kNow);
    EXPECT_EQ(book_.Redeem(Good(), kNow).code(), absl::StatusCode::kFailedPrecondition);
    return status.code();
  }

  const ExportScope scope_{11, Generation(7), BufferId(3), RankId(0), 100};
  const PeerTicket peer_{RankId(1), 101, {1, 2, 3}};
  const PeerTicket other_peer_{RankId(2), 102, {4, 5, 6}};
  TicketBook book_;
};

TEST_F(TicketBookTest, IsGoodOnce) {
  EXPECT_TRUE(book_.Redeem(Good(), kNow).ok());
  EXPECT_EQ(book_.Redeem(Good(), kNow).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(TicketBookTest, UnknownTicketsAreRefused) {
  DescriptorRequest request = Good();
  request.ticket[15] ^= 1;
  EXPECT_EQ(book_.Redeem(request, kNow).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(book_.Redeem(Good(), kNow).ok());
}

TEST_F(TicketBookTest, AnotherRanksTicketIsRefusedAndSpent) {
  EXPECT_EQ(Refused([](DescriptorRequest& request) { request.requester_rank = 2; }),
            absl::StatusCode::kPermissionDenied);
}
TEST_F(TicketBookTest, AnotherIncarnationOfTheRequesterIsRefused) {
  EXPECT_EQ(Refused([](DescriptorRequest& request) { request.requester_incarnation = 1; }),
            absl::StatusCode::kPermissionDenied);
}
TEST_F(TicketBookTest, AnotherGenerationIsRefused) {
  EXPECT_EQ(Refused([](DescriptorRequest& request) { request.generation = 6; }),
            absl::StatusCode::kFailedPrecondition);
}
TEST_F(TicketBookTest, AnotherBufferIsRefused) {
  EXPECT_EQ(Refused([](DescriptorRequest& request) { request.buffer = 4; }),
            absl::StatusCode::kFailedPrecondition);
}
TEST_F(TicketBookTest, AnotherExporterIsRefused) {
  EXPECT_EQ(Refused([](DescriptorRequest& request) { request.exporter_incarnation = 1; }),
            absl::StatusCode::kFailedPrecondition);
}
TEST_F(TicketBookTest, AnotherGroupIsRefused) {
  EXPECT_EQ(Refused([](DescriptorRequest& request) { request.group_hash = 1; }),
            absl::StatusCode::kFailedPrecondition);
}
TEST_F(TicketBookTest, AnotherAbiIsRefused) {
  EXPECT_EQ(Refused([](DescriptorRequest& request) { request.abi += 1; }),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(TicketBookTest, TicketsExpire) {
  EXPECT_TRUE(book_.Redeem(Good(), kEnd - absl::Nanoseconds(1)).ok());
  DescriptorRequest request = Good();
  request.requester_rank = other_peer_.rank.value;
  request.requester_incarnation = other_peer_.incarnation;
  request.ticket = other_peer_.ticket;
  EXPECT_EQ(book_.Redeem(request, kEnd).code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(TicketBookTest, RevokedTicketsAreUnknown) {
  book_.Revoke(BufferId(3), Generation(6));
  book_.Revoke(BufferId(4), Generation(7));
  DescriptorRequest request = Good();
  book_.Revoke(BufferId(3), Generation(7));
  EXPECT_EQ(book_.Redeem(request, kNow).code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace perigee
