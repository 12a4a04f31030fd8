// What the control plane answers, as the message of a call.
#ifndef PERIGEE_SERVER_RPC_CALL_REPLY_H_
#define PERIGEE_SERVER_RPC_CALL_REPLY_H_

#include "server/rpc/reply.h"
#include "server/sinks.h"

namespace perigee {

// For calls that answer with a Message (v1::Group or v1::Buffer), or with an empty one.
template <typename Message>
CallDone ReplyWith(ReplyFunction<Message> reply) {
  return [reply = std::move(reply)](const CallResult& result) {
    Reply<Message> answer{result.status, result.error, {}};
    if (const auto* message = std::get_if<Message>(&result.response)) answer.message = *message;
    reply(answer);
  };
}

template <typename Empty>
CallDone ReplyEmpty(ReplyFunction<Empty> reply) {
  return [reply = std::move(reply)](const CallResult& result) {
    reply(Reply<Empty>{result.status, result.error, {}});
  };
}

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_CALL_REPLY_H_
