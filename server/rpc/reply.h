// What a handler answers, free of gRPC.
#ifndef PERIGEE_SERVER_RPC_REPLY_H_
#define PERIGEE_SERVER_RPC_REPLY_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/types/optional.h"
#include "proto/v1/error.pb.h"

namespace perigee {

template <typename Message>
struct Reply {
  absl::Status status;
  absl::optional<v1::GroupError> error;  // where ranks are why it failed
  Message message;                       // where the status is OK
};

// Called exactly once, from any thread; neither blocks nor calls back.
template <typename Message>
using ReplyFunction = std::function<void(const Reply<Message>&)>;

}  // namespace perigee

#endif  // PERIGEE_SERVER_RPC_REPLY_H_
