#include "server/rpc/publication_service.h"

#include "server/rpc/unary.h"

namespace perigee {

grpc::ServerUnaryReactor* PublicationService::GetGeneration(grpc::CallbackServerContext* context,
                                                            const v1::GetGenerationRequest* request,
                                                            v1::GenerationInfo* response) {
  return FinishWith(*context, handler_.GetGeneration(*request), response);
}

grpc::ServerUnaryReactor* PublicationService::ListGenerations(
    grpc::CallbackServerContext* context, const v1::ListGenerationsRequest* request,
    v1::ListGenerationsResponse* response) {
  return FinishWith(*context, handler_.ListGenerations(*request), response);
}

grpc::ServerUnaryReactor* PublicationService::AbortGeneration(
    grpc::CallbackServerContext* context, const v1::AbortGenerationRequest* request,
    v1::GenerationInfo* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  handler_.AbortGeneration(*request, FinishLater(*context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* PublicationService::IssueTokens(grpc::CallbackServerContext* context,
                                                          const v1::IssueTokensRequest* request,
                                                          v1::IssueTokensResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  handler_.IssueTokens(*request, FinishLater(*context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* PublicationService::GetTokenLedger(
    grpc::CallbackServerContext* context, const v1::GetTokenLedgerRequest* request,
    v1::TokenLedger* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  handler_.GetTokenLedger(*request, FinishLater(*context, reactor, response));
  return reactor;
}

}  // namespace perigee
