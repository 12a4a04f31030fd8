#include "proto/local/attach_message.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace perigee {
namespace {

using ::testing::HasSubstr;

AttachReply GoodReply() {
  AttachReply reply;
  reply.size_bytes[0] = 4096;
  reply.size_bytes[1] = 8192;
  reply.size_bytes[2] = 1000;
  reply.rows_offset = 999;
  reply.row_weights_offset = 64;
  return reply;
}

std::string Refusal(const AttachReply& reply) {
  const absl::Status status = ParseAttachReply(ToBytes(reply)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(AttachMessage, TravelsWhole) {
  AttachRequest request;
  request.rank = 3;
  request.ticket = {1, 2, 3};
  const absl::StatusOr<AttachRequest> parsed = ParseAttachRequest(ToBytes(request));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->rank, 3);
  EXPECT_EQ(parsed->ticket, request.ticket);
  EXPECT_TRUE(ParseAttachReply(ToBytes(GoodReply())).ok());
  EXPECT_TRUE(ParseDetachMessage(ToBytes(DetachMessage())).ok());
}

TEST(AttachMessage, WrongSizesAndMagicsAreRefused) {
  const std::string bytes = ToBytes(AttachRequest());
  EXPECT_THAT(std::string(ParseAttachRequest(bytes.substr(1)).status().message()),
              HasSubstr("63 bytes, expected 64"));
  EXPECT_FALSE(ParseAttachRequest(bytes + "x").ok());
  AttachRequest request;
  request.magic = kDescriptorRequestMagic;
  EXPECT_FALSE(ParseAttachRequest(ToBytes(request)).ok());
  EXPECT_FALSE(ParseDetachMessage(ToBytes(uint32_t{0})).ok());
}

TEST(AttachMessage, AReplyThatCannotBeIsRefused) {
  AttachReply reply = GoodReply();
  reply.rows_offset = 1000;
  EXPECT_THAT(Refusal(reply), HasSubstr("rows at 1000"));
  reply = GoodReply();
  reply.row_weights_offset = ~uint64_t{0};
  EXPECT_THAT(Refusal(reply), HasSubstr("a shard of 1000 bytes"));
  reply = GoodReply();
  reply.peers = kMaxAttachPeers + 1;
  EXPECT_THAT(Refusal(reply), HasSubstr("rows of 128 peers, expected at most 127"));
  reply = GoodReply();
  reply.size_bytes[1] = 0;
  EXPECT_THAT(Refusal(reply), HasSubstr("empty part 1"));
  reply = GoodReply();
  reply.size_bytes[3] = 0;
  reply.size_bytes[4] = 5;
  EXPECT_THAT(PartsOf(reply), testing::ElementsAre(AttachPart::kCommandPage, AttachPart::kArena,
                                                   AttachPart::kShardRows, AttachPart::kSlots));
  EXPECT_TRUE(ParseAttachReply(ToBytes(reply)).ok()) << "no gradients";
  std::fill(std::begin(reply.source_access), std::end(reply.source_access), 'a');
  EXPECT_THAT(Refusal(reply), HasSubstr("words of access that do not end"));
  std::fill_n(reply.device_uuid, kDeviceUuidBytes, 'x');
  EXPECT_THAT(Refusal(reply), HasSubstr("does not end"));
  reply = AttachReply();
  reply.code = 7;
  EXPECT_TRUE(ParseAttachReply(ToBytes(reply)).ok()) << "a refusal has nothing else";
}

}  // namespace
}  // namespace perigee
