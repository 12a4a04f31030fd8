// Tokens under the key of one rank, as only its worker and the coordinator can sign them: for what
// neither of them would sign.
#ifndef PERIGEE_TESTS_CLIENTS_RANK_TOKEN_SIGNER_H_
#define PERIGEE_TESTS_CLIENTS_RANK_TOKEN_SIGNER_H_

#include <cstdint>

#include "proto/support/publication_token.h"
#include "tests/clients/client_cluster.h"

namespace perigee {

// Of the generation that lives. Looks into the coordinator's data directory; once for each rank of
// a cluster.
TokenSigner RankTokenSigner(ClientCluster& cluster, int32_t rank);

}  // namespace perigee

#endif  // PERIGEE_TESTS_CLIENTS_RANK_TOKEN_SIGNER_H_
