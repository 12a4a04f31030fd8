#include "server/rpc/buffer_service.h"

#include "server/rpc/unary.h"

namespace perigee {

grpc::ServerUnaryReactor* BufferService::CreateBuffer(grpc::CallbackServerContext* context,
                                                      const v1::CreateBufferRequest* request,
                                                      v1::Buffer* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  handler_.Create(*request, FinishLater(*context, reactor, response));
  return reactor;
}

grpc::ServerUnaryReactor* BufferService::GetBuffer(grpc::CallbackServerContext* context,
                                                   const v1::GetBufferRequest* request,
                                                   v1::Buffer* response) {
  return FinishWith(*context, handler_.Get(*request), response);
}

grpc::ServerUnaryReactor* BufferService::ListBuffers(grpc::CallbackServerContext* context,
                                                     const v1::ListBuffersRequest* request,
                                                     v1::ListBuffersResponse* response) {
  return FinishWith(*context, handler_.List(*request), response);
}

grpc::ServerUnaryReactor* BufferService::DeleteBuffer(grpc::CallbackServerContext* context,
                                                      const v1::DeleteBufferRequest* request,
                                                      v1::DeleteBufferResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  handler_.Delete(*request, FinishLater(*context, reactor, response));
  return reactor;
}

}  // namespace perigee
