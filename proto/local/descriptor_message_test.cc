#include "proto/local/descriptor_message.h"

#include <cstdlib>
#include <random>

#include "gtest/gtest.h"

namespace perigee {
namespace {

DescriptorReply GoodReply() {
  DescriptorReply reply;
  reply.part_count = 70;
  reply.first_part = 64;
  reply.parts_here = 6;
  return reply;
}

TEST(DescriptorMessageTest, RequestsSurviveTheWay) {
  DescriptorRequest request;
  request.abi = 7;
  request.generation = 1ull << 40;
  request.requester_rank = 3;
  request.ticket.fill(0xab);
  absl::StatusOr<DescriptorRequest> parsed = ParseDescriptorRequest(ToBytes(request));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(ToBytes(*parsed), ToBytes(request));
}

TEST(DescriptorMessageTest, SizesAndMagicsAreChecked) {
  const std::string request = ToBytes(DescriptorRequest());
  EXPECT_FALSE(ParseDescriptorRequest(request + "x").ok());
  EXPECT_FALSE(ParseDescriptorRequest(request.substr(1)).ok());
  EXPECT_FALSE(ParseDescriptorRequest("").ok());
  std::string other = request;
  other[0] ^= 1;
  EXPECT_FALSE(ParseDescriptorRequest(other).ok());
  const std::string reply = ToBytes(GoodReply());
  EXPECT_TRUE(ParseDescriptorReply(reply).ok());
  EXPECT_FALSE(ParseDescriptorReply(reply.substr(1)).ok());
  EXPECT_FALSE(ParseDescriptorReply(request).ok());
}

TEST(DescriptorMessageTest, RepliesWhoseCountsLeadOutsideAreRefused) {
  const auto refused = [](auto change) {
    DescriptorReply reply = GoodReply();
    change(reply);
    return !ParseDescriptorReply(ToBytes(reply)).ok();
  };
  EXPECT_TRUE(refused([](DescriptorReply& reply) { reply.part_count = 0; }));
  EXPECT_TRUE(refused([](DescriptorReply& reply) { reply.part_count = kMaxParts + 1; }));
  EXPECT_TRUE(refused([](DescriptorReply& reply) { reply.parts_here = 0; }));
  EXPECT_TRUE(refused([](DescriptorReply& reply) { reply.parts_here = 7; }));
  EXPECT_TRUE(refused([](DescriptorReply& reply) { reply.first_part = 70; }));
  EXPECT_TRUE(refused([](DescriptorReply& reply) {
    reply.first_part = 0;
    reply.parts_here = kPartsPerReply + 1;
  }));
  EXPECT_TRUE(refused([](DescriptorReply& reply) { reply.first_part = ~0u; }));
}

TEST(DescriptorMessageTest, ARefusalNeedsNoParts) {
  DescriptorReply reply;
  reply.code = 7;
  EXPECT_TRUE(ParseDescriptorReply(ToBytes(reply)).ok());
}

// Whatever arrives is either refused or leads nowhere outside.
TEST(DescriptorMessageTest, GarbageIsRefusedOrHarmless) {
  const char* given = std::getenv("PERIGEE_SEED");
  const uint64_t seed = given ? std::strtoull(given, nullptr, 0) : std::random_device()();
  SCOPED_TRACE(testing::Message() << "PERIGEE_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = ToBytes(GoodReply());
    for (int change = 0; change < 3; ++change) {
      bytes[4 + random() % 20] = static_cast<char>(random() % 4 ? random() % 80 : random());
    }
    absl::StatusOr<DescriptorReply> reply = ParseDescriptorReply(bytes);
    if (!reply.ok() || reply->code != 0) continue;
    ASSERT_LE(reply->parts_here, kPartsPerReply);
    ASSERT_LE(reply->first_part + reply->parts_here, reply->part_count);
    ASSERT_LE(reply->part_count, kMaxParts);
  }
}

TEST(DescriptorMessageTest, GroupsHashApart) {
  EXPECT_EQ(HashGroupName("tenants/a/groups/b"), HashGroupName("tenants/a/groups/b"));
  EXPECT_NE(HashGroupName("tenants/a/groups/b"), HashGroupName("tenants/a/groups/c"));
}

}  // namespace
}  // namespace perigee
