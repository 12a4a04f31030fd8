// BufferService without its transport: requests to calls of the control plane, results to replies.
#ifndef PERIGEE_SERVER_RPC_BUFFER_HANDLER_H_
#define PERIGEE_SERVER_RPC_BUFFER_HANDLER_H_

#include "absl/status/statusor.h"
#include "proto/v1/buffers.pb.h"
#include "server/control_plane.h"
#include "server/rpc/reply.h"
#include "server/rpc/request_log.h"

namespace perigee {

// INVALID_ARGUMENT names the field.
absl::StatusOr<NewBuffer> ParseNewBuffer(const v1::CreateBufferRequest& request);

// Thread-safe. Errors as in buffers.proto; every INVALID_ARGUMENT names the field.
class BufferHandler {
 public:
  // Both outlive it.
  BufferHandler(ControlPlane& control, RequestLog& log) : control_(control), log_(log) {}

  void Create(const v1::CreateBufferRequest& request, ReplyFunction<v1::Buffer> reply);
  void Delete(const v1::DeleteBufferRequest& request,
              ReplyFunction<v1::DeleteBufferResponse> reply);
  absl::StatusOr<v1::Buffer> Get(const v1::GetBufferRequest& request) const;
  absl::StatusOr<v1::ListBuffersResponse> List(const v1::ListBuffersRequest& request) const;

 private:
  ControlPlane& control_;
  RequestLog& log_;
};

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_BUFFER_HANDLER_H_
