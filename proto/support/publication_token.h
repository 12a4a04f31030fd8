// Publication tokens as they travel and as they are signed. A token is 96 bytes, little endian:
//
//    0 magic "PGPT"    4 version, 2 bytes    6 kind, 1 byte    7 zero, 1 byte
//    8 tenant hash    16 group hash         24 buffer id       32 generation
//   40 serial         48 rank, 4 bytes      52 zero, 4 bytes   56 expiry, nanoseconds
//   64 HMAC-SHA256 of the 64 bytes before it
//
// under a key of one rank and one generation, which only the coordinator and that rank's worker
// have. Whoever holds a token may use it, once: it is a secret, and is never logged.
#ifndef PERIGEE_PROTO_SUPPORT_PUBLICATION_TOKEN_H_
#define PERIGEE_PROTO_SUPPORT_PUBLICATION_TOKEN_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "kernels/common/ids.h"

struct evp_mac_ctx_st;

namespace perigee {

inline constexpr size_t kPublicationTokenBytes = 96;
using PublicationTokenBytes = std::array<char, kPublicationTokenBytes>;
inline constexpr size_t kTokenKeyBytes = 32;
using TokenKey = std::array<unsigned char, kTokenKeyBytes>;

// What a token permits.
enum class TokenKind : uint8_t { kPublish = 1 };

// Whose tokens they are: one rank in one generation of a group.
struct TokenScope {
  uint64_t tenant_hash = 0;
  uint64_t group_hash = 0;
  Generation generation;
  RankId rank;
  friend bool operator==(const TokenScope&, const TokenScope&) = default;
};
// `group_name` is tenants/{t}/groups/{g}.
TokenScope MakeTokenScope(absl::string_view group_name, Generation generation, RankId rank);

struct PublicationToken {
  TokenScope scope;
  BufferId buffer;
  uint64_t serial = 0;
  TokenKind kind = TokenKind::kPublish;
  // Since the grant of the range that the serial belongs to, on the clock of whoever counts.
  absl::Duration expiry;
};

// Serials [first, first + count), none of which was ever in another range.
struct SerialRange {
  uint64_t first = 0;
  uint64_t count = 0;
  bool contains(uint64_t serial) const { return serial >= first && serial - first < count; }
  bool overlaps(const SerialRange& other) const {
    return first < other.first + other.count && other.first < first + count;
  }
  friend bool operator==(const SerialRange&, const SerialRange&) = default;
};

// What the bytes say, whoever wrote them; null where they are no token at all.
absl::optional<PublicationToken> DecodePublicationToken(absl::string_view bytes);

// Signs and verifies with one key, which it wipes when it goes. Not thread-safe.
class TokenSigner {
 public:
  explicit TokenSigner(const TokenKey& key);
  ~TokenSigner();
  TokenSigner(TokenSigner&&) noexcept;
  TokenSigner& operator=(TokenSigner&&) noexcept;

  std::string Sign(const PublicationToken& token);
  // Whether `bytes` were signed with this key; takes the same time wherever they differ.
  bool Verify(absl::string_view bytes);

 private:
  struct FreeContext {
    void operator()(evp_mac_ctx_st* context) const;
  };
  std::array<unsigned char, 32> Mac(const char* body);

  std::unique_ptr<evp_mac_ctx_st, FreeContext> context_;
};

}  // namespace perigee

#endif  // PERIGEE_PROTO_SUPPORT_PUBLICATION_TOKEN_H_
