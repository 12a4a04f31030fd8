// The keys that publication tokens are signed with: HKDF-SHA256 of the coordinator's master key,
// with the generation's salt, and with group, generation and rank as info. Two ranks, or two
// generations, never share one, so no worker can make a token that is good at another.
#ifndef PERIGEE_SERVER_PUBLICATION_TOKEN_KEYS_H_
#define PERIGEE_SERVER_PUBLICATION_TOKEN_KEYS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "kernels/common/ids.h"
#include "proto/support/publication_token.h"

namespace perigee {

inline constexpr size_t kMasterKeyBytes = 32;
inline constexpr size_t kTokenSaltBytes = 32;

// Immutable, so thread-safe.
class TokenKeys {
 public:
  // `master` has kMasterKeyBytes bytes.
  explicit TokenKeys(std::string master);
  ~TokenKeys();  // wipes it
  TokenKeys(const TokenKeys&) = delete;
  TokenKeys& operator=(const TokenKeys&) = delete;

  // `group` is tenants/{t}/groups/{g}; `salt` is the one stored for the generation.
  TokenKey Derive(absl::string_view salt, absl::string_view group, Generation generation,
                  RankId rank) const;

 private:
  std::string master_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_PUBLICATION_TOKEN_KEYS_H_
