#include "server/publication/token_keys.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace perigee {
namespace {

constexpr const char* kGroup = "tenants/default/groups/g";

std::string Hex(const TokenKey& key) {
  std::string hex;
  for (const unsigned char byte : key) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

// Computed by another implementation of HKDF-SHA256: a stored salt must lead to the same key in
// every build, or answers that were stored with it would change.
TEST(TokenKeys, TheKeyOfAScopeDoesNotChange) {
  const TokenKeys keys(std::string(kMasterKeyBytes, 'm'));
  const TokenKey key =
      keys.Derive(std::string(kTokenSaltBytes, 's'), kGroup, Generation(7), RankId(3));
  EXPECT_EQ(Hex(key), "bfe3b4e6090ec6cbfaacbd3cda3684e6112d09648d78ef16adf08fd7ada2db10");
}

TEST(TokenKeys, EveryPartOfTheScopeMakesAnotherKey) {
  const TokenKeys keys(std::string(kMasterKeyBytes, 'm'));
  const TokenKeys others(std::string(kMasterKeyBytes, 'n'));
  const std::string salt(kTokenSaltBytes, 's');
  std::set<std::string> seen;
  seen.insert(Hex(keys.Derive(salt, kGroup, Generation(7), RankId(3))));
  seen.insert(
      Hex(keys.Derive(std::string(kTokenSaltBytes, 't'), kGroup, Generation(7), RankId(3))));
  seen.insert(Hex(keys.Derive(salt, "tenants/default/groups/h", Generation(7), RankId(3))));
  seen.insert(Hex(keys.Derive(salt, kGroup, Generation(8), RankId(3))));
  seen.insert(Hex(keys.Derive(salt, kGroup, Generation(7), RankId(4))));
  seen.insert(Hex(others.Derive(salt, kGroup, Generation(7), RankId(3))));
  // Digits do not move from the generation to the rank.
  seen.insert(Hex(keys.Derive(salt, kGroup, Generation(73), RankId(1))));
  seen.insert(Hex(keys.Derive(salt, kGroup, Generation(7), RankId(31))));
  EXPECT_EQ(seen.size(), 8u);
}

}  // namespace
}  // namespace perigee
