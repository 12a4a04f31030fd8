// How one call is made: a deadline, a stop request that cancels it, the server's GroupError taken
// from its end.
#ifndef PERIGEE_CLIENT_LIB_GRPC_CALL_H_
#define PERIGEE_CLIENT_LIB_GRPC_CALL_H_

#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/lib/group_error.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"

namespace perigee {

// Time for a few attempts; a server that is not there is reported that much later.
inline constexpr absl::Duration kConnectRetryTime = absl::Milliseconds(400);

// A plain-text channel that never goes through a proxy. It connects with the first call.
std::shared_ptr<grpc::Channel> NewChannel(const std::string& address);

// Connects, and tries again until `timeout` has passed; whether there is a connection then. For
// calls that are sent once: gRPC 1.51 reads errno too late after connect(2), so that an attempt may
// fail with any error though the server is there (grpc/grpc#35064).
bool ConnectWithin(grpc::Channel& channel, absl::Duration timeout = kConnectRetryTime);

// One call's context. Not thread-safe, but for the stop request.
class GrpcCall {
 public:
  // timeout: absl::InfiniteDuration() for none.
  GrpcCall(const std::stop_token& stop, absl::Duration timeout)
      : on_stop_(stop, Cancel{&context_}) {
    if (timeout < absl::InfiniteDuration()) {
      context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    }
  }

  grpc::ClientContext* context() { return &context_; }
  // What the call came to; call it once, when it has ended.
  absl::Status Outcome(const grpc::Status& status) const { return CallStatus(status, context_); }

 private:
  struct Cancel {
    grpc::ClientContext* context;
    void operator()() const { context->TryCancel(); }
  };

  grpc::ClientContext context_;
  std::stop_callback<Cancel> on_stop_;  // goes first: it must not outlive the context
};

}  // namespace perigee

#endif  // PERIGEE_CLIENT_LIB_GRPC_CALL_H_
