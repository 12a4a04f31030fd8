#include "proto/support/publication_token.h"

#include <random>
#include <string>

#include "gtest/gtest.h"

namespace perigee {
namespace {

constexpr const char* kGroup = "tenants/default/groups/g";

TokenKey KeyOf(unsigned char byte) {
  TokenKey key;
  key.fill(byte);
  return key;
}

PublicationToken RandomToken(std::mt19937_64& random) {
  PublicationToken token;
  token.scope =
      MakeTokenScope(kGroup, Generation(random()), RankId(static_cast<int32_t>(random() % 4096)));
  token.buffer = BufferId(random());
  token.serial = random();
  token.expiry = absl::Nanoseconds(static_cast<int64_t>(random() >> 1));
  return token;
}

TEST(PublicationToken, ComesBackAsItWasSigned) {
  std::mt19937_64 random{std::random_device()()};
  TokenSigner signer(KeyOf(7));
  for (int i = 0; i < 200; ++i) {
    const PublicationToken token = RandomToken(random);
    const std::string bytes = signer.Sign(token);
    ASSERT_EQ(bytes.size(), kPublicationTokenBytes);
    const auto read = DecodePublicationToken(bytes);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->scope, token.scope);
    EXPECT_EQ(read->buffer, token.buffer);
    EXPECT_EQ(read->serial, token.serial);
    EXPECT_EQ(read->kind, token.kind);
    EXPECT_EQ(read->expiry, token.expiry);
    EXPECT_TRUE(signer.Verify(bytes));
  }
}

// A known answer, computed by another implementation of HMAC-SHA256: workers and
// coordinators of two builds must agree.
TEST(PublicationToken, TheBytesOfATokenDoNotChange) {
  PublicationToken token;
  token.scope = {0x0102030405060708, 0x1112131415161718, Generation(42), RankId(3)};
  token.buffer = BufferId(5);
  token.serial = 65537;
  token.expiry = absl::Hours(1);
  const std::string bytes = TokenSigner(KeyOf(0x0b)).Sign(token);
  std::string hex;
  for (const unsigned char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  EXPECT_EQ(hex,
            "50475054"
            "0100"
            "01"
            "00"
            "0807060504030201"
            "1817161514131211"
            "0500000000000000"
            "2a00000000000000"
            "0100010000000000"
            "03000000"
            "00000000"
            "00a0b83046030000"
            "1ef3e1919912e15b67b744a13af7cb4e33948ded5a6a99712433465619ce62cb");
}

TEST(PublicationToken, EveryBitOfItCounts) {
  std::mt19937_64 random{std::random_device()()};
  TokenSigner signer(KeyOf(7));
  const std::string bytes = signer.Sign(RandomToken(random));
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(signer.Verify(changed)) << "bit " << bit;
  }
  EXPECT_TRUE(signer.Verify(bytes)) << "the signer keeps its key";
}

TEST(PublicationToken, AnotherKeyDoesNotVerify) {
  std::mt19937_64 random{std::random_device()()};
  const std::string bytes = TokenSigner(KeyOf(7)).Sign(RandomToken(random));
  EXPECT_FALSE(TokenSigner(KeyOf(8)).Verify(bytes));
}

TEST(PublicationToken, WhatIsNoTokenIsNotRead) {
  std::mt19937_64 random{std::random_device()()};
  TokenSigner signer(KeyOf(7));
  const std::string bytes = signer.Sign(RandomToken(random));
  EXPECT_FALSE(DecodePublicationToken(""));
  EXPECT_FALSE(DecodePublicationToken(bytes.substr(1)));
  EXPECT_FALSE(DecodePublicationToken(bytes + "x"));
  EXPECT_FALSE(signer.Verify(bytes + "x"));
  for (const size_t fixed : {0u, 3u, 4u, 5u, 7u, 52u, 55u}) {
    std::string changed = bytes;
    changed[fixed] = static_cast<char>(changed[fixed] ^ 0x40);
    EXPECT_FALSE(DecodePublicationToken(changed)) << "byte " << fixed;
  }
}

TEST(PublicationToken, AScopeTellsTenantsAndGroupsApart) {
  const TokenScope scope = MakeTokenScope(kGroup, Generation(1), RankId(0));
  const TokenScope sibling = MakeTokenScope("tenants/default/groups/h", Generation(1), RankId(0));
  EXPECT_EQ(scope.tenant_hash, sibling.tenant_hash);
  EXPECT_NE(scope.group_hash, sibling.group_hash);
  const TokenScope foreign = MakeTokenScope("tenants/other/groups/g", Generation(1), RankId(0));
  EXPECT_NE(scope.tenant_hash, foreign.tenant_hash);
  EXPECT_NE(scope.group_hash, foreign.group_hash);
}

TEST(SerialRange, OverlapsExactlyWhereASerialIsInBoth) {
  const SerialRange range{10, 5};
  for (uint64_t first = 0; first < 20; ++first) {
    for (uint64_t count = 1; count < 8; ++count) {
      const SerialRange other{first, count};
      bool shared = false;
      for (uint64_t serial = 0; serial < 40; ++serial) {
        shared = shared || (range.contains(serial) && other.contains(serial));
      }
      EXPECT_EQ(range.overlaps(other), shared) << first << " " << count;
    }
  }
}

}  // namespace
}  // namespace perigee
