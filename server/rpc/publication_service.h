// PublicationService over gRPC (proto/v1/publication.proto has the contract).
#ifndef PERIGEE_SERVER_RPC_PUBLICATION_SERVICE_H_
#define PERIGEE_SERVER_RPC_PUBLICATION_SERVICE_H_

#include "proto/v1/publication.grpc.pb.h"
#include "server/control_plane.h"
#include "server/rpc/publication_handler.h"
#include "server/rpc/request_log.h"

namespace perigee {

class PublicationService final : public v1::PublicationService::CallbackService {
 public:
  // Both outlive it.
  PublicationService(ControlPlane& control, RequestLog& log) : handler_(control, log) {}

  grpc::ServerUnaryReactor* GetGeneration(grpc::CallbackServerContext* context,
                                          const v1::GetGenerationRequest* request,
                                          v1::GenerationInfo* response) override;
  grpc::ServerUnaryReactor* ListGenerations(grpc::CallbackServerContext* context,
                                            const v1::ListGenerationsRequest* request,
                                            v1::ListGenerationsResponse* response) override;
  grpc::ServerUnaryReactor* AbortGeneration(grpc::CallbackServerContext* context,
                                            const v1::AbortGenerationRequest* request,
                                            v1::GenerationInfo* response) override;
  grpc::ServerUnaryReactor* IssueTokens(grpc::CallbackServerContext* context,
                                        const v1::IssueTokensRequest* request,
                                        v1::IssueTokensResponse* response) override;
  grpc::ServerUnaryReactor* GetTokenLedger(grpc::CallbackServerContext* context,
                                           const v1::GetTokenLedgerRequest* request,
                                           v1::TokenLedger* response) override;

 private:
  PublicationHandler handler_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_PUBLICATION_SERVICE_H_
