// BufferService over gRPC (proto/v1/buffers.proto has the contract).
#ifndef PERIGEE_SERVER_RPC_BUFFER_SERVICE_H_
#define PERIGEE_SERVER_RPC_BUFFER_SERVICE_H_

#include "proto/v1/buffers.grpc.pb.h"
#include "server/control_plane.h"
#include "server/rpc/buffer_handler.h"
#include "server/rpc/request_log.h"

namespace perigee {

class BufferService final : public v1::BufferService::CallbackService {
 public:
  // Both outlive it.
  BufferService(ControlPlane& control, RequestLog& log) : handler_(control, log) {}

  grpc::ServerUnaryReactor* CreateBuffer(grpc::CallbackServerContext* context,
                                         const v1::CreateBufferRequest* request,
                                         v1::Buffer* response) override;
  grpc::ServerUnaryReactor* GetBuffer(grpc::CallbackServerContext* context,
                                      const v1::GetBufferRequest* request,
                                      v1::Buffer* response) override;
  grpc::ServerUnaryReactor* ListBuffers(grpc::CallbackServerContext* context,
                                        const v1::ListBuffersRequest* request,
                                        v1::ListBuffersResponse* response) override;
  grpc::ServerUnaryReactor* DeleteBuffer(grpc::CallbackServerContext* context,
                                         const v1::DeleteBufferRequest* request,
                                         v1::DeleteBufferResponse* response) override;

 private:
  BufferHandler handler_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_BUFFER_SERVICE_H_
