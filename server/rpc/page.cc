#include "server/rpc/page.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/support/defaults.h"

namespace perigee {
namespace {

constexpr absl::string_view kPrefix = "after:";

}  // namespace

std::string PageToken(absl::string_view last_key) {
  return absl::WebSafeBase64Escape(absl::StrCat(kPrefix, last_key));
}

absl::StatusOr<std::string> ParsePageToken(absl::string_view token) {
  if (token.empty()) return std::string();
  std::string text;
  absl::string_view key;
  if (absl::WebSafeBase64Unescape(token, &text)) {
    key = text;
    if (absl::ConsumePrefix(&key, kPrefix) && !key.empty()) return std::string(key);
  }
  return absl::InvalidArgumentError("page_token: expected one of an earlier answer");
}

absl::StatusOr<size_t> PageSize(int page_size) {
  if (page_size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_size is ", page_size, ", expected 0 or more"));
  }
  const int most = kDefaultPageSize;
  return static_cast<size_t>(page_size == 0 || page_size > most ? most : page_size);
}

}  // namespace perigee
