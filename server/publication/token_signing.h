// The tokens of one issue, signed. The same issue and key give the same bytes every time.
#ifndef PERIGEE_SERVER_PUBLICATION_TOKEN_SIGNING_H_
#define PERIGEE_SERVER_PUBLICATION_TOKEN_SIGNING_H_

#include "proto/support/publication_token.h"
#include "proto/v1/publication.pb.h"
#include "server/store/store.h"

namespace perigee {

// All but the worker's name.
v1::IssueTokensResponse SignIssue(const TokenIssue& issue, const TokenKey& key);

}  // namespace perigee

#endif  // PERIGEE_SERVER_PUBLICATION_TOKEN_SIGNING_H_
