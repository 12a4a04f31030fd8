#include "proto/support/publication_token.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>
#include <cstring>

#include "kernels/common/check.h"

namespace perigee {
namespace {

constexpr char kMagic[4] = {'P', 'G', 'P', 'T'};
constexpr uint64_t kVersion = 1;
constexpr size_t kBodyBytes = 64;

// Bytes of each field, in order, behind the magic.
struct Field {
  size_t offset;
  size_t bytes;
};
constexpr Field kVersionField{4, 2};
constexpr Field kKindField{6, 1};
constexpr Field kFirstZero{7, 1};
constexpr Field kTenantField{8, 8};
constexpr Field kGroupField{16, 8};
constexpr Field kBufferField{24, 8};
constexpr Field kGenerationField{32, 8};
constexpr Field kSerialField{40, 8};
constexpr Field kRankField{48, 4};
constexpr Field kSecondZero{52, 4};
constexpr Field kExpiryField{56, 8};

void Put(std::string& bytes, Field field, uint64_t value) {
  for (size_t i = 0; i < field.bytes; ++i) {
    bytes[field.offset + i] = static_cast<char>(value >> (8 * i));
  }
}

uint64_t Get(absl::string_view bytes, Field field) {
  uint64_t value = 0;
  for (size_t i = 0; i < field.bytes; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[field.offset + i])} << (8 * i);
  }
  return value;
}

uint64_t HashName(absl::string_view name) {
  unsigned char digest[32];
  PERIGEE_CHECK(EVP_Digest(name.data(), name.size(), digest, nullptr, EVP_sha256(), nullptr) == 1);
  uint64_t value = 0;
  std::memcpy(&value, digest, sizeof(value));
  return value;
}

}  // namespace

TokenScope MakeTokenScope(absl::string_view group_name, Generation generation, RankId rank) {
  return {HashName(group_name.substr(0, group_name.find("/groups/"))), HashName(group_name),
          generation, rank};
}

absl::optional<PublicationToken> DecodePublicationToken(absl::string_view bytes) {
  if (bytes.size() != kPublicationTokenBytes) return absl::nullopt;
  const bool ours = std::equal(kMagic, kMagic + sizeof(kMagic), bytes.begin()) &&
                    Get(bytes, kVersionField) == kVersion && Get(bytes, kFirstZero) == 0 &&
                    Get(bytes, kSecondZero) == 0;
  if (!ours) return absl::nullopt;
  PublicationToken token;
  token.scope.tenant_hash = Get(bytes, kTenantField);
  token.scope.group_hash = Get(bytes, kGroupField);
  token.scope.generation = Generation(Get(bytes, kGenerationField));
  token.scope.rank = RankId(static_cast<int32_t>(Get(bytes, kRankField)));
  token.buffer = BufferId(Get(bytes, kBufferField));
  token.serial = Get(bytes, kSerialField);
  token.kind = static_cast<TokenKind>(Get(bytes, kKindField));
  token.expiry = absl::Nanoseconds(static_cast<int64_t>(Get(bytes, kExpiryField)));
  return token;
}

void TokenSigner::FreeContext::operator()(evp_mac_ctx_st* context) const {
  EVP_MAC_CTX_free(context);
}

TokenSigner::TokenSigner(const TokenKey& key) {
  EVP_MAC* const mac = EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_HMAC, nullptr);
  PERIGEE_CHECK(mac != nullptr);
  context_.reset(EVP_MAC_CTX_new(mac));
  EVP_MAC_free(mac);
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0), OSSL_PARAM_END};
  PERIGEE_CHECK(context_ != nullptr &&
                EVP_MAC_init(context_.get(), key.data(), key.size(), parameters) == 1);
}

TokenSigner::~TokenSigner() = default;
TokenSigner::TokenSigner(TokenSigner&&) noexcept = default;
TokenSigner& TokenSigner::operator=(TokenSigner&&) noexcept = default;

// Begins with the key that the context holds already: setting it up again takes longer than the
// sum itself.
std::array<unsigned char, 32> TokenSigner::Mac(const char* body) {
  std::array<unsigned char, 32> mac;
  size_t size = 0;
  const auto* const data = reinterpret_cast<const unsigned char*>(body);
  PERIGEE_CHECK(EVP_MAC_init(context_.get(), nullptr, 0, nullptr) == 1 &&
                EVP_MAC_update(context_.get(), data, kBodyBytes) == 1 &&
                EVP_MAC_final(context_.get(), mac.data(), &size, mac.size()) == 1 &&
                size == mac.size());
  return mac;
}

std::string TokenSigner::Sign(const PublicationToken& token) {
  std::string bytes(kPublicationTokenBytes, '\0');
  std::copy(kMagic, kMagic + sizeof(kMagic), bytes.begin());
  Put(bytes, kVersionField, kVersion);
  Put(bytes, kKindField, static_cast<uint64_t>(token.kind));
  Put(bytes, kTenantField, token.scope.tenant_hash);
  Put(bytes, kGroupField, token.scope.group_hash);
  Put(bytes, kBufferField, token.buffer.value);
  Put(bytes, kGenerationField, token.scope.generation.value);
  Put(bytes, kSerialField, token.serial);
  Put(bytes, kRankField, static_cast<uint64_t>(token.scope.rank.value));
  Put(bytes, kExpiryField, static_cast<uint64_t>(absl::ToInt64Nanoseconds(token.expiry)));
  const auto mac = Mac(bytes.data());
  std::memcpy(bytes.data() + kBodyBytes, mac.data(), mac.size());
  return bytes;
}

bool TokenSigner::Verify(absl::string_view bytes) {
  if (bytes.size() != kPublicationTokenBytes) return false;
  const auto mac = Mac(bytes.data());
  return CRYPTO_memcmp(mac.data(), bytes.data() + kBodyBytes, mac.size()) == 0;
}

}  // namespace perigee
