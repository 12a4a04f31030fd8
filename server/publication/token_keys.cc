#include "server/publication/token_keys.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/check.h"

namespace perigee {

TokenKeys::TokenKeys(std::string master) : master_(std::move(master)) {
  PERIGEE_CHECK(master_.size() == kMasterKeyBytes);
}

TokenKeys::~TokenKeys() { OPENSSL_cleanse(master_.data(), master_.size()); }

TokenKey TokenKeys::Derive(absl::string_view salt, absl::string_view group, Generation generation,
                           RankId rank) const {
  // A name has no line breaks, so no two scopes read alike.
  std::string info =
      absl::StrCat("perigee publication token\n", group, "\n", generation.value, "\n", rank.value);
  std::string master = master_, salt_bytes(salt);
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, master.data(), master.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt_bytes.data(), salt_bytes.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
      OSSL_PARAM_END};
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, OSSL_KDF_NAME_HKDF, nullptr);
  PERIGEE_CHECK(kdf != nullptr);
  EVP_KDF_CTX* const context = EVP_KDF_CTX_new(kdf);
  EVP_KDF_free(kdf);
  TokenKey key;
  PERIGEE_CHECK(context != nullptr &&
                EVP_KDF_derive(context, key.data(), key.size(), parameters) == 1);
  EVP_KDF_CTX_free(context);
  OPENSSL_cleanse(master.data(), master.size());
  return key;
}

}  // namespace perigee
