// PublicationService without its transport: requests to calls of the control plane, results to
// replies.
#ifndef PERIGEE_SERVER_RPC_PUBLICATION_HANDLER_H_
#define PERIGEE_SERVER_RPC_PUBLICATION_HANDLER_H_

#include "absl/status/statusor.h"
#include "proto/v1/publication.pb.h"
#include "server/control_plane.h"
#include "server/rpc/reply.h"
#include "server/rpc/request_log.h"

namespace perigee {

// Thread-safe. Errors as in publication.proto; every INVALID_ARGUMENT names the field.
class PublicationHandler {
 public:
  // Both outlive it.
  PublicationHandler(ControlPlane& control, RequestLog& log) : control_(control), log_(log) {}

  absl::StatusOr<v1::GenerationInfo> GetGeneration(const v1::GetGenerationRequest& request) const;
  absl::StatusOr<v1::ListGenerationsResponse> ListGenerations(
      const v1::ListGenerationsRequest& request) const;
  void AbortGeneration(const v1::AbortGenerationRequest& request,
                       ReplyFunction<v1::GenerationInfo> reply);
  void IssueTokens(const v1::IssueTokensRequest& request,
                   ReplyFunction<v1::IssueTokensResponse> reply);
  void GetTokenLedger(const v1::GetTokenLedgerRequest& request,
                      ReplyFunction<v1::TokenLedger> reply);

 private:
  ControlPlane& control_;
  RequestLog& log_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_PUBLICATION_HANDLER_H_
