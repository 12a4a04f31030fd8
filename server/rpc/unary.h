// The end of a unary call.
#ifndef PERIGEE_SERVER_RPC_UNARY_H_
#define PERIGEE_SERVER_RPC_UNARY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "grpcpp/grpcpp.h"
#include "proto/support/grpc_status.h"
#include "server/rpc/group_error_metadata.h"
#include "server/rpc/reply.h"

namespace perigee {

// `status` as a call ends with it; the error of a group goes into the trailing metadata.
inline grpc::Status EndStatus(grpc::CallbackServerContext& context, const absl::Status& status,
                              const absl::optional<v1::GroupError>& error) {
  if (error) context.AddTrailingMetadata(kGroupErrorMetadataKey, SerializeGroupError(*error));
  if (status.ok()) return grpc::Status::OK;
  return ToGrpc(absl::Status(status.code(), LimitStatusMessage(std::string(status.message()))));
}

// Answers at once.
inline grpc::ServerUnaryReactor* FinishWith(grpc::CallbackServerContext& context,
                                            const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(EndStatus(context, status, {}));
  return reactor;
}

template <typename Message>
grpc::ServerUnaryReactor* FinishWith(grpc::CallbackServerContext& context,
                                     absl::StatusOr<Message> result, Message* response) {
  if (result.ok()) *response = *std::move(result);
  return FinishWith(context, result.status());
}

// Answers when called. The context, the reactor and the response live until then.
template <typename Message>
ReplyFunction<Message> FinishLater(grpc::CallbackServerContext& context,
                                   grpc::ServerUnaryReactor* reactor, Message* response) {
  return [&context, reactor, response](const Reply<Message>& reply) {
    if (reply.status.ok()) *response = reply.message;
    reactor->Finish(EndStatus(context, reply.status, reply.error));
  };
}

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_UNARY_H_
