#include "server/publication/token_signing.h"

#include "server/wire_time.h"

namespace perigee {

v1::IssueTokensResponse SignIssue(const TokenIssue& issue, const TokenKey& key) {
  PublicationToken token;
  token.scope = MakeTokenScope(issue.group, issue.generation, issue.rank);
  token.buffer = issue.buffer;
  token.expiry = issue.expiry;
  TokenSigner signer(key);
  v1::IssueTokensResponse response;
  for (uint64_t i = 0; i < issue.serials.count; ++i) {
    token.serial = issue.serials.first + i;
    response.add_tokens(signer.Sign(token));
  }
  response.set_generation(issue.generation.value);
  response.set_rank(issue.rank.value);
  response.set_first_serial(issue.serials.first);
  *response.mutable_life() = ToWire(issue.expiry);
  return response;
}

}  // namespace perigee
