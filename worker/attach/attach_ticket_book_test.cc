#include "worker/attach/attach_ticket_book.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/layout/abi.h"
#include "proto/local/command_page.h"

namespace perigee {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kNow = absl::Seconds(100);
constexpr absl::Duration kEnd = absl::Seconds(130);

class AttachTicketBookTest : public ::testing::Test {
 protected:
  AttachTicketBookTest() {
    book_.Issue(5, scope_, {1, 2, 3}, kEnd);
    book_.Issue(6, scope_, {4, 5, 6}, kEnd + absl::Seconds(1));
  }

  AttachRequest Good() const {
    AttachRequest request;
    request.abi = kDataPathAbi;
    request.page_version = kCommandPageVersion;
    request.group_hash = scope_.group_hash;
    request.generation = scope_.generation.value;
    request.buffer = scope_.buffer.value;
    request.rank = scope_.rank.value;
    request.incarnation = scope_.incarnation;
    request.ticket = {1, 2, 3};
    return request;
  }
  // Refused, and the ticket is spent by it: its attachment is named, and told once.
  void ExpectStale(void (*change)(AttachRequest&)) {
    AttachTicketBook book;
    book.Issue(5, scope_, {1, 2, 3}, kEnd);
    AttachRequest request = Good();
    change(request);
    const AttachTicketBook::Redeemed refused = book.Redeem(request, kNow);
    EXPECT_EQ(refused.status.code(), absl::StatusCode::kFailedPrecondition) << refused.status;
    EXPECT_EQ(refused.attachment, 5u);
    const AttachTicketBook::Redeemed again = book.Redeem(Good(), kNow);
    EXPECT_EQ(again.status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_FALSE(again.attachment.has_value());
  }

  const AttachScope scope_{11, Generation(7), BufferId(3), RankId(1), 100};
  AttachTicketBook book_;
};

TEST_F(AttachTicketBookTest, IsGoodOnce) {
  const AttachTicketBook::Redeemed first = book_.Redeem(Good(), kNow);
  EXPECT_TRUE(first.status.ok()) << first.status;
  EXPECT_EQ(first.attachment, 5u);
  const AttachTicketBook::Redeemed replayed = book_.Redeem(Good(), kNow);
  EXPECT_EQ(replayed.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(replayed.attachment.has_value()) << "the attachment that lives is not its matter";
}

TEST_F(AttachTicketBookTest, AForgedTicketIsUnknownAndSpendsNothing) {
  AttachRequest request = Good();
  request.ticket[15] ^= 1;
  const AttachTicketBook::Redeemed forged = book_.Redeem(request, kNow);
  EXPECT_EQ(forged.status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(forged.attachment.has_value());
  EXPECT_TRUE(book_.Redeem(Good(), kNow).status.ok());
}

TEST_F(AttachTicketBookTest, ATicketForSomethingElseIsSpent) {
  ExpectStale([](AttachRequest& request) { request.rank = 0; });
  ExpectStale([](AttachRequest& request) { request.generation = 6; });
  ExpectStale([](AttachRequest& request) { request.buffer = 4; });
  ExpectStale([](AttachRequest& request) { request.incarnation = 101; });
  ExpectStale([](AttachRequest& request) { request.group_hash = 1; });
  ExpectStale([](AttachRequest& request) { request.abi += 1; });
  ExpectStale([](AttachRequest& request) { request.page_version += 1; });
}

TEST_F(AttachTicketBookTest, TicketsExpire) {
  EXPECT_EQ(book_.NextExpiry(), kEnd);
  EXPECT_TRUE(book_.TakeExpired(kEnd - absl::Nanoseconds(1)).empty());
  const AttachTicketBook::Redeemed late = book_.Redeem(Good(), kEnd);
  EXPECT_EQ(late.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.attachment, 5u);
  EXPECT_TRUE(book_.TakeExpired(kEnd).empty()) << "told already";
  EXPECT_EQ(book_.NextExpiry(), kEnd + absl::Seconds(1));
  EXPECT_THAT(book_.TakeExpired(kEnd + absl::Seconds(1)), ElementsAre(6));
  EXPECT_TRUE(book_.TakeExpired(kEnd + absl::Seconds(2)).empty());
  EXPECT_EQ(book_.NextExpiry(), absl::InfiniteDuration());
}

TEST_F(AttachTicketBookTest, RevokedTicketsAreUnknown) {
  book_.Revoke(6);
  book_.Revoke(5);
  EXPECT_EQ(book_.Redeem(Good(), kNow).status.code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace perigee
